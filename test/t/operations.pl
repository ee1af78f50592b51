# Guards docs/operations.md and docs/monitoring: what they tell whoever is on call
# to type works, and sees what it is said to see.
#
# - Every example in SQL runs, in order, in one session.
# - Links lead somewhere, and the manual explains exactly the alerts that exist.
# - Every query of queries.yaml runs as a role that may only monitor, gives the
#   columns that are declared for it, one row for each set of labels, and the
#   right numbers for elections in all states.
# - The dashboard and the alerts use metrics that these queries give, and the
#   dashboard all of them.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use CPAN::Meta::YAML;
use JSON::PP;
use LeaderElection qw(:DEFAULT draw);
use PostgreSQL::Test::Utils;
use Test::More;

my $docs = "$FindBin::RealBin/../../docs";
my $manual = slurp_file("$docs/operations.md");
my $queries = read_yaml('queries.yaml');
my @rules = @{ read_yaml('alerts.yaml')->{groups}[0]{rules} };
my $dashboard = JSON::PP->new->decode(slurp_file("$docs/monitoring/dashboard.json"));

my $node = new_node('main', streaming => 1, conf => "synchronous_standby_names = ''\n");
my $dbh = connect_to($node);

sub read_yaml
{
	my ($file) = @_;
	return CPAN::Meta::YAML->read("$docs/monitoring/$file")->[0];
}

# The last holder is gone.
sub let_expire
{
	my ($election, $session) = @_;
	my $holder = "gone from $election";

	acquire($session, $election, $holder, '100 ms');
	poll_until(
		sub {
			value($session, 'SELECT state FROM leader_status WHERE election = ?', $election) eq 'expired';
		},
		'a lease to run out');
	return;
}

#
# The manual
#

# What the examples speak of
$dbh->do('CREATE DATABASE app');
$dbh->do('CREATE TABLE ledger (amount numeric)');
$dbh->do('CREATE TABLE repaired (id int, amount numeric)');
$dbh->do('CREATE TABLE replicated (id int, epoch bigint)');
value($dbh, q{SELECT leader_protect('ledger', 'closing')});
value($dbh, q{SELECT leader_protect('repaired', 'repair')});
value($dbh, q{SELECT leader_protect('replicated', 'closing', 'epoch')});
$dbh->do(q{SET leader_election.enforce = off});
$dbh->do('INSERT INTO repaired VALUES (1, 17)');
$dbh->do(q{SET leader_election.enforce = on});
$dbh->do('ALTER TABLE ledger DISABLE TRIGGER ALL');
let_expire('crashed', $dbh);
let_expire('old job', $dbh);
let_expire('closing', $dbh);
value($dbh, q{SELECT leader_configure('closing', paused => true)});
draw($dbh, 'repair');
my $session = connect_to($node);
value($session, q{SELECT epoch FROM leader_acquire_session('session')});
is(sqlstate($dbh, 'INSERT INTO repaired VALUES (1, 17)'), 'LE002', 'a write that is refused');

# An open transaction that has changed an election
my $open = connect_to($node);
$open->begin_work;
acquire($open, 'open', 'node-1', '1 hour');

my @blocks = $manual =~ /^```sql\n(.*?)^```$/msg;
my $number = 0;
my $script = join '', map { '\echo === ' . $number++ . "\n$_" } @blocks;

cmp_ok(scalar @blocks, '>=', 15, 'the manual has examples');
my ($status, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$script",
	on_error_stop => 0);
is($status, 0, 'psql ran the examples to their end');
is(join("\n", $err =~ /^.*(?:ERROR|WARNING):.*$/mg), '', 'all of them succeed');
my (undef, @outputs) = split /^=== \d+\n?/m, $out;
is(scalar @outputs, scalar @blocks, 'every example has run');

# What the block with these words has shown
sub shown
{
	my ($words) = @_;
	my @found = grep { $blocks[$_] =~ $words } 0 .. $#blocks;

	is(scalar @found, 1, "one example is about $words");
	return $outputs[ $found[0] ];
}

like(shown(qr/AS renewed_ago/), qr/^session\|held\|f\|/m, 'who leads');
like(shown(qr/AS last_leader/), qr/^crashed\|gone from crashed\|/m, 'nobody leads, since when');
like(shown(qr/AS lasted/), qr/\|gone from closing\|.*\|expired$/m, 'the last terms');
like(shown(qr/WHERE rejected_stale/), qr/^repair\|0\|1\|0\|/m, 'what was refused');
like(shown(qr/pg_locks/), qr/\|ExclusiveLock\|t\|@{[backend_pid($open)]}\|/, 'who has the lock of an election');
like(shown(qr/s\.kind = 'session'/), qr/^session\|@{[backend_pid($session)]}\|/m, 'the session that leads');
like(shown(qr/^SELECT relation, election, problem/), qr/^ledger\|closing\|.*disabled/m, 'what is not protected');
like(shown(qr/^SELECT election, state, leader FROM leader_status WHERE paused/),
	qr/^closing\|expired\|.*\n.*gone from closing/m, 'which election is paused, and why');
like(shown(qr/FROM leader_protected WHERE election = 'old job'/), qr/^t$/m, 'an election is dropped');

is(value($dbh, 'SELECT amount FROM repaired'), 1, 'data are repaired by hand');
is(value($dbh, 'SELECT count(*) FROM leader_protected WHERE NOT in_force'), 0,
	'what was not protected is');
is(value($dbh, q{SELECT replica::int FROM leader_protected WHERE relation = 'replicated'::regclass}), 1,
	'also against changes as a replica');
is(value($dbh, q{SELECT paused::int FROM leader_status WHERE election = 'closing'}), 0,
	'an election is resumed');
is(value($dbh, q{SELECT count(*) FROM pg_db_role_setting
		WHERE array_to_string(setconfig, ',') LIKE '%leader_election%'}),
	0, 'no switch is left off');
$open->rollback;

# Links in the manual: to its headings, as they are named on the web, and files
my %heading = map { my $name = lc; $name =~ s/[^\w\- ]//g; $name =~ tr/ /-/; ($name => 1) }
  $manual =~ /^#+ (.*)$/mg;
is(join(' ', grep { !$heading{$_} } $manual =~ /\]\(#([^)]*)\)/g), '', 'links to headings');
is(join(' ', grep { !-e "$docs/$_" } $manual =~ /\]\(([^)#]+)(?:#[^)]*)?\)/g), '', 'links to files');
is(join(' ', sort map { $_->{alert} } @rules),
	join(' ', sort $manual =~ /^\| `(LeaderElection\w+)` \|/mg),
	'the manual has the alerts that there are');

#
# The queries of the exporter
#

$dbh->do('CREATE DATABASE monitored');
my $admin = connect_to($node, 'monitored');
my @sessions = map { connect_to($node, 'monitored') } 1 .. 2;
$admin->do('CREATE EXTENSION leader_election');
$admin->do('CREATE ROLE monitor LOGIN IN ROLE pg_monitor');
$admin->do('CREATE ROLE reader LOGIN IN ROLE pg_read_all_stats');

my $lease = acquire($admin, 'lease', 'leader of it', '1 hour')->{epoch};
renew($admin, 'lease', $lease);
acquire($admin, 'lease', 'rival');
value($sessions[0], q{SELECT epoch FROM leader_acquire_session('session', 'a session')});
value($sessions[1], q{SELECT epoch FROM leader_acquire_session('both', 'a session', '1 hour')});
my $free = acquire($admin, 'free', 'leader')->{epoch};
value($admin, 'SELECT leader_release(?, ?)', 'free', $free);
let_expire('expired', $admin);
let_expire('expired', $admin);
acquire($admin, 'deposed', 'leader', '1 hour');
value($admin, q{SELECT leader_depose('deposed')});
value($admin, q{SELECT leader_configure('paused', paused => true)});
value($admin, q{SELECT leader_configure('external', external => true)});
acquire($admin, q{odd "name", {x}}, 'odd "leader"', '1 hour');

$admin->do('CREATE TABLE good (id int)');
$admin->do('CREATE TABLE "odd ""table" (id int)');
value($admin, q{SELECT leader_protect('good', 'lease')});
value($admin, q{SELECT leader_protect('"odd ""table"', 'lease')});
$admin->do('ALTER TABLE "odd ""table" DISABLE TRIGGER ALL');
is(sqlstate($admin, 'INSERT INTO good VALUES (1)'), 'LE002', 'a write without a token');
is(sqlstate($admin, 'SELECT leader_fence(?, ?)', 'free', $free), 'LE001', 'a stale one');
is(sqlstate($admin, 'SELECT leader_fence(?, ?)', 'lease', $lease + 1), 'LE003', 'one from elsewhere');
is(sqlstate($admin, "SET leader_election.fence = 'lease=$lease'"), '00000', 'a token');
is(sqlstate($admin, 'INSERT INTO good VALUES (1)'), '00000', 'a write with it');

# A term that no standby has: there is none, and the wait for it is cut short.
rewrite_conf($node, synchronous_standby_names => "'nobody'");
await_sync_commits($node);
my $waiting = connect_to($node, 'monitored');
start_query($waiting, q{SELECT leader_acquire('unconfirmed', 'leader', '1 hour')});
wait_for_state($admin, backend_pid($waiting), qr/SyncRep/);
value($admin, 'SELECT pg_cancel_backend(?)', backend_pid($waiting));
finish_query($waiting);

# Which metrics there are, as postgres_exporter names them
my %metrics;

foreach my $namespace (sort keys %$queries)
{
	foreach my $entry (@{ $queries->{$namespace}{metrics} })
	{
		my ($column) = keys %$entry;

		like($entry->{$column}{usage}, qr/^(?:LABEL|GAUGE|COUNTER)$/, "$namespace: kind of $column");
		isnt($entry->{$column}{description} // '', '', "$namespace: description of $column");
		$metrics{"${namespace}_$column"} = 1 if $entry->{$column}{usage} ne 'LABEL';
		is($entry->{$column}{usage} eq 'COUNTER' ? 1 : 0, $column =~ /_total$/ ? 1 : 0,
			"$namespace: $column is named after its kind");
	}
}

sub rows
{
	my ($user, $namespace) = @_;
	my $monitor = connect_to($node, 'monitored', user => $user);
	my $sth = $monitor->prepare($queries->{$namespace}{query});

	$sth->execute;
	my $columns = [ @{ $sth->{NAME} } ];
	return ($columns, $sth->fetchall_arrayref({}));
}

my %seen;
foreach my $namespace (sort keys %$queries)
{
	my @declared = map { keys %$_ } @{ $queries->{$namespace}{metrics} };
	my %usage = map { my ($column) = keys %$_; $column => $_->{$column}{usage} }
	  @{ $queries->{$namespace}{metrics} };
	my @labels = grep { $usage{$_} eq 'LABEL' } @declared;
	my ($columns, $rows) = rows('monitor', $namespace);

	is("@$columns", "@declared", "$namespace: columns are those that are declared");
	cmp_ok(scalar @$rows, '>=', 1, "$namespace: there is something to see");

	my (%times, @odd);
	foreach my $row (@$rows)
	{
		$times{ join "\0", map { $_ // 'NULL' } @$row{@labels} }++;
		push @odd, map { "$_ = $row->{$_}" }
		  grep { defined $row->{$_} && $row->{$_} !~ /^-?\d+(?:\.\d+)?(?:e-?\d+)?$/ }
		  grep { $usage{$_} ne 'LABEL' } @declared;
		push @odd, map { "$_ is NULL" } grep { !defined $row->{$_} } @labels;
		push @odd, map { "$_ is NULL" }
		  grep { $usage{$_} eq 'COUNTER' && !defined $row->{$_} } @declared;
	}
	is_deeply([ grep { $_ > 1 } values %times ], [], "$namespace: labels tell rows apart");
	is(join(', ', @odd), '', "$namespace: values are numbers, labels and counters are there");
	is(scalar @{ (rows('reader', $namespace))[1] }, scalar @$rows, "$namespace: pg_read_all_stats suffices");

	$seen{$namespace} = $rows;
}

# What is seen of elections
my %status = map { $_->{election} => $_ } @{ $seen{leader_election_status} };
my %state = (
	lease => 'held',
	session => 'held',
	both => 'held',
	q{odd "name", {x}} => 'held',
	free => 'free',
	deposed => 'free',
	paused => 'free',
	external => 'free',
	expired => 'expired',
	unconfirmed => 'unconfirmed');

is_deeply([ sort keys %status ], [ sort keys %state ], 'every election is seen');
foreach my $election (sort keys %state)
{
	my $row = $status{$election};
	is(join(' ', grep { $row->{$_} } qw(held expired unconfirmed free)),
		$state{$election}, "$election: its state");
	is($row->{paused}, $election eq 'paused' ? 1 : 0, "$election: paused or not");
}
is($status{lease}{ttl_seconds}, 3600, 'a TTL');
cmp_ok($status{lease}{lease_age_seconds} + $status{lease}{expires_in_seconds}, '==', 3600,
	'a lease has an age and a rest');
cmp_ok($status{lease}{lease_age_seconds}, '<', $status{lease}{term_age_seconds} + 1,
	'and is not older than its term');
is($status{session}{$_}, undef, "a session without TTL has no $_")
  for qw(ttl_seconds expires_in_seconds lease_age_seconds);
is($status{expired}{terms_total}, 2, 'terms are counted');

my %leader = map { $_->{election} => $_ } @{ $seen{leader_election_leader} };
is_deeply([ sort keys %leader ], [ sort grep { $state{$_} eq 'held' } keys %state ],
	'leaders are seen of those that are held');
is("@{ $leader{lease} }{qw(leader kind epoch)}", "leader of it lease $lease", 'the leader, and its epoch');

my %stats = map { $_->{election} => $_ } @{ $seen{leader_election_stats} };
is($stats{lease}{"${_}_total"}, 1, "one of $_")
  for qw(renewals losing_bids fenced_commits rejected_missing rejected_unissued);
is($stats{free}{rejected_stale_total}, 1, 'one of rejected_stale');
is($stats{expired}{takeovers_total}, 1, 'one of takeovers');
is($stats{expired}{changes_last_hour}, 2, 'changes of the last hour');
cmp_ok($stats{lease}{longest_renewal_gap_seconds}, '>', 0, 'the longest gap');

is_deeply($seen{leader_election_protection}, [ { tables => 2, not_in_force => 1 } ],
	'protected tables, and those that are not');
is(join(' ', map { $_->{relation} } @{ $seen{leader_election_unprotected} }), '"odd ""table"',
	'which');
my ($database) = @{ $seen{leader_election_database} };
is($database->{elections}, scalar keys %state, 'how many elections');
is($database->{elections_limit}, 10000, 'and how many there may be');
is($database->{uncounted}, 0, 'all of them are counted');

#
# What uses them
#

# Names of metrics in an expression
sub used { return map { /\b(leader_election_\w+)/g } @_; }

my @panels = @{ $dashboard->{panels} };
my @expressions = map { $_->{expr} } map { @{ $_->{targets} } } @panels;
my @variables = map { $_->{query} } @{ $dashboard->{templating}{list} };
my %drawn = map { $_ => 1 } used(@expressions);

cmp_ok(scalar @panels, '>=', 10, 'the dashboard has panels');
is(scalar(grep { !used($_) } @expressions), 0, 'every expression uses a metric');
is(join(' ', grep { !$metrics{$_} } used(@expressions, @variables)), '',
	'the dashboard uses metrics that there are');
is(join(' ', grep { !$drawn{$_} } sort keys %metrics), '', 'and all of them');

cmp_ok(scalar @rules, '>=', 8, 'there are alerts');
foreach my $rule (@rules)
{
	isnt(join(' ', used($rule->{expr})), '', "$rule->{alert}: uses a metric");
	is(join(' ', grep { !$metrics{$_} } used($rule->{expr})), '', "$rule->{alert}: metrics that there are");
}

rewrite_conf($node, synchronous_standby_names => "''");
done_testing();
