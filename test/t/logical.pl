# Guards P2 for changes that logical replication brings to a protected table, by
# its apply worker and by the initial copy; and that a subscription whose change
# was refused goes on when the change is skipped, or the token put right.
#
# What must happen is read from the table in docs/fencing.md, a case here for each
# of its rows.  Publisher and subscriber are two databases of one server.
use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', streaming => 1, conf => <<'EOC');
wal_level = logical
wal_retrieve_retry_interval = 10ms
max_logical_replication_workers = 8
max_worker_processes = 16
max_prepared_transactions = 4
logical_decoding_work_mem = 64kB
EOC
my $dbh = connect_to($node);

# Subscriptions that fail are disabled, and can be owned by superusers only, on
# 15.
$dbh->do('CREATE ROLE applier LOGIN SUPERUSER');
$dbh->do('CREATE DATABASE publisher');
my $publisher = connect_to($node, 'publisher');
my $subscriber = connect_to($node, 'postgres', user => 'applier');

my $stale = acquire($dbh, 'e', 'old', '1 hour')->{epoch};
value($dbh, q{SELECT leader_release('e', ?)}, $stale);
my $current = acquire($dbh, 'e', 'new', '1 hour')->{epoch};
my $older = $stale - 1;

# In the order of the manual's columns: is the protection also for replicas, and
# which token does the worker present?
my @ways = ([ 'false', undef ], [ 'true', undef ], [ 'true', $stale ], [ 'true', $current ]);

# Changes by their rows in the manual.  Each concerns a row of its own, or a
# table: what counts is the last statement.
my %changes = (
	'INSERT, the current epoch' => [ 't', 21, "INSERT INTO t VALUES (21, 1, $current)" ],
	'INSERT, a stale epoch' => [ 't', 22, "INSERT INTO t VALUES (22, 1, $stale)" ],
	'INSERT, no epoch' => [ 't', 23, 'INSERT INTO t VALUES (23, 1, NULL)' ],
	'INSERT into a partition, through the root, no epoch' =>
	  [ 'root', 24, 'INSERT INTO root VALUES (24, 1, NULL)' ],
	'UPDATE, to the current epoch' => [ 't', 1, "UPDATE t SET v = 2, epoch = $current WHERE id = 1" ],
	'UPDATE, to another stale epoch' => [ 't', 2, "UPDATE t SET v = 2, epoch = $older WHERE id = 2" ],
	'UPDATE that leaves the epoch as it was' => [ 't', 3, 'UPDATE t SET v = 2 WHERE id = 3' ],
	'UPDATE, a second one, of a row that was stamped here and comes with a stale epoch' =>
	  [ 't', 4, 'UPDATE t SET v = 2 WHERE id = 4', 'UPDATE t SET v = 3 WHERE id = 4' ],
	'UPDATE, a second one, of a row that was stamped here and comes with none' =>
	  [ 't', 11, 'UPDATE t SET v = 2 WHERE id = 11', 'UPDATE t SET v = 3 WHERE id = 11' ],
	'DELETE' => [ 't', 5, 'DELETE FROM t WHERE id = 5' ],
	'TRUNCATE' => [ 'emptied', undef, 'TRUNCATE emptied' ]);

# Tables that are copied, by what their rows have for an epoch
my %copies = (
	'initial copy, rows with the current epoch' => [ 'copy_current', $current ],
	'initial copy, rows with a stale epoch' => [ 'copy_stale', $stale ],
	'initial copy, rows without epoch' => [ 'copy_none', 'NULL' ]);

# A schema for each way
foreach my $schema (map { "way_$_" } 0 .. $#ways)
{
	foreach my $session ($publisher, $subscriber)
	{
		$session->do("CREATE SCHEMA $schema");
		$session->do("CREATE TABLE $schema.$_ (id int PRIMARY KEY, v int, epoch bigint)")
		  for 't', 'emptied', map { $_->[0] } values %copies;
		$session->do("CREATE TABLE $schema.root (id int PRIMARY KEY, v int, epoch bigint) PARTITION BY RANGE (id)");
		$session->do("CREATE TABLE $schema.leaf PARTITION OF $schema.root FOR VALUES FROM (1) TO (100)");
	}
	$publisher->do("INSERT INTO $schema.$_->[0] SELECT n, 1, $_->[1] FROM generate_series(1, 10) n")
	  for values %copies, [ 't', $stale ], [ 'emptied', $stale ];
	$publisher->do("INSERT INTO $schema.t VALUES (11, 1, NULL)");
}
$_->do('CREATE TABLE public.marker (id int PRIMARY KEY)') for $publisher, $subscriber;

# In one command the slot would wait for itself, within one server.
$publisher->do('CREATE PUBLICATION p FOR TABLE public.marker WITH (publish_via_partition_root = true)');
value($publisher, q{SELECT pg_create_logical_replication_slot('s', 'pgoutput')});
$subscriber->do(sprintf q{CREATE SUBSCRIPTION s CONNECTION %s PUBLICATION p
	WITH (create_slot = false, slot_name = 's', disable_on_error = true)},
	$subscriber->quote($node->connstr('publisher')));

#
# Steering the subscription
#

my $subscription = 's';

sub enabled
{
	return value($subscriber, 'SELECT subenabled FROM pg_subscription WHERE subname = ?', $subscription);
}

# Workers read the settings of their role when they start.
sub present
{
	my ($epoch) = @_;

	$dbh->do(defined $epoch ? "ALTER ROLE applier SET leader_election.fence = 'e=$epoch'"
		: 'ALTER ROLE applier RESET leader_election.fence');
	$subscriber->do('ALTER SUBSCRIPTION s DISABLE');
	poll_until(sub { !value($subscriber, 'SELECT count(pid) FROM pg_stat_subscription') }, 'workers to end');
	$subscriber->do('ALTER SUBSCRIPTION s ENABLE');
	return;
}

# Waits for a condition, or for the subscription to be disabled.  The answer is
# the SQLSTATE, and where the transaction that was refused ends.
my $read_up_to = 0;

sub await
{
	my ($condition, $what) = @_;

	poll_until(sub { !enabled() || $condition->() }, $what);
	return '00000' if enabled();

	my $log = substr slurp_file($node->logfile), $read_up_to;
	$read_up_to += length $log;
	# What its predecessor used may not be free yet when a worker starts; then the
	# next one tries (55006).
	my ($error) = grep { !/^55006/ && !/could not start WAL streaming/ } $log =~ /ERROR:  (\w{5}: .*?)LOCATION/sg;
	my ($state, $position) = ($error // '') =~ m{^(\w{5}): (?:.*finished at ([0-9A-F]+/[0-9A-F]+))?}s;
	return ($state // 'no error', $position);
}

# Adds tables to the publication; the answer is how their initial copy ended.
# One that was refused is taken out again.
sub publish
{
	my (@tables) = @_;
	my $list = join ', ', @tables;

	$publisher->do("ALTER PUBLICATION p ADD TABLE $list");
	$subscriber->do('ALTER SUBSCRIPTION s REFRESH PUBLICATION');
	my ($state) = await(
		sub { !value($subscriber, q{SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'}) },
		"the copy of $list");
	if ($state ne '00000')
	{
		$publisher->do("ALTER PUBLICATION p DROP TABLE $list");
		$subscriber->do('ALTER SUBSCRIPTION s ENABLE');
		$subscriber->do('ALTER SUBSCRIPTION s REFRESH PUBLICATION');
	}
	return $state;
}

# What was committed before a marker has been applied, or skipped, when the marker
# is there.
my $marker = 0;

sub await_marker
{
	return await(
		sub { value($subscriber, 'SELECT count(*) FROM public.marker WHERE id = ?', $marker) },
		'changes to be applied');
}

sub replicate
{
	my ($sql) = @_;

	$publisher->do($sql);
	$publisher->do('INSERT INTO public.marker VALUES (?)', undef, ++$marker);
	return await_marker();
}

sub skip_change
{
	my ($position) = @_;

	$subscriber->do("ALTER SUBSCRIPTION s SKIP (lsn = '$position')");
	$subscriber->do('ALTER SUBSCRIPTION s ENABLE');
	return await_marker();
}

#
# What has come of a change
#

sub content
{
	my ($session, $what, $table, $id) = @_;
	my $where = defined $id ? "WHERE id = $id" : '';
	return join ' ', @{ column($session, "SELECT concat_ws(',', $what) FROM $table $where ORDER BY id") };
}

sub outcome
{
	my ($state, $before, $table, $id) = @_;
	my @here = map { content($subscriber, $_, $table, $id) } 'id, v', 'epoch';
	my @there = map { content($publisher, $_, $table, $id) } 'id, v', 'epoch';

	return "@here" eq $before ? $state : "$state but changed" if $state ne '00000';
	return 'changed' if $here[0] ne $there[0];
	return 'applied' if $here[1] eq $there[1];
	return 'stamped' if $here[1] =~ /^$current( $current)*$/;
	return 'applied under another epoch';
}

sub change
{
	my ($schema, $table, $id, @sql) = @_;
	my ($before, $state, $position);

	$publisher->do("SET search_path = $schema");
	foreach my $sql (@sql)
	{
		$before = join ' ', map { content($subscriber, $_, "$schema.$table", $id) } 'id, v', 'epoch';
		($state, $position) = replicate($sql);
		is((skip_change($position))[0], '00000', "$schema: the subscription goes on without: $sql")
		  if $state ne '00000';
	}
	return outcome($state, $before, "$schema.$table", $id);
}

#
# The test
#

my $manual = slurp_file(abs_path(dirname(__FILE__) . '/../../docs/fencing.md'));
my ($lines) = $manual =~ /^\| Replicated change \|.*\n.*\n((?:\|.*\n)+)/m;
my %promised = map {
	my ($name, @cells) = map { s/`|^ +| +$//gr } split /\|/, s/^\||\|$//gr;
	$name => \@cells } split /\n/, $lines // '';

is(join('; ', sort keys %promised), join('; ', sort keys %copies, keys %changes),
	'the manual tells of every case');

foreach my $i (0 .. $#ways)
{
	my ($replica, $token) = @{ $ways[$i] };
	my $schema = "way_$i";
	my $way = "replica => $replica, "
	  . (!defined $token ? 'no token' : $token == $current ? 'current token' : 'stale token');

	is(publish("$schema.t", "$schema.emptied", "$schema.root"), '00000', "$way: what is there before is copied");
	$subscriber->do("SELECT leader_protect('$schema.$_', 'e', 'epoch', $replica)")
	  for 't', 'emptied', 'root', map { $_->[0] } values %copies;
	present($token);

	foreach my $case (sort keys %copies)
	{
		my $table = "$schema.$copies{$case}[0]";
		is(outcome(publish($table), ' ', $table), $promised{$case}[$i], "P2: $way: $case");
	}
	foreach my $case (sort keys %changes)
	{
		is(change($schema, @{ $changes{$case} }), $promised{$case}[$i], "P2: $way: $case");
	}
}

# Transactions that are applied while they still run on the publisher, from 16 on
# by workers of their own.  A term ends, and with it what the worker presents: the
# next transaction waits for the new token.
my $streaming = value($dbh, 'SHOW server_version_num') < 160000 ? 'on' : 'parallel';
my $count = 'SELECT count(*) FROM way_3.t WHERE id > ? AND epoch = ?';

$subscriber->do("ALTER SUBSCRIPTION s SET (streaming = $streaming)");
$publisher->do('SET search_path = way_3');
is((replicate('INSERT INTO t SELECT n, 1, NULL FROM generate_series(1001, 6000) n'))[0],
	'00000', 'a large transaction is applied');
is(value($subscriber, $count, 1000, $current), 5000, 'and each row stamped');
value($dbh, q{SELECT leader_release('e', ?)}, $current);
$current = acquire($dbh, 'e', 'next', '1 hour')->{epoch};
is((replicate('INSERT INTO t SELECT n, 1, NULL FROM generate_series(6001, 11000) n'))[0],
	'LE001', 'P2: a token that the worker has used before gets stale');
is(value($subscriber, 'SELECT count(*) FROM way_3.t WHERE id > 6000'), 0, 'P2: nothing of it is applied');
present($current);
is((await_marker())[0], '00000', 'with the new token the subscription goes on');
is(value($subscriber, $count, 6000, $current), 5000, 'and nothing was lost');

# A transaction that used a token cannot be prepared, by a worker neither.
$_->do('CREATE TABLE public.prepared (id int PRIMARY KEY, v int, epoch bigint)') for $publisher, $subscriber;
$subscriber->do(q{SELECT leader_protect('public.prepared', 'e', 'epoch', true)});
$publisher->do('CREATE PUBLICATION prepared FOR TABLE public.prepared');
value($publisher, q{SELECT pg_create_logical_replication_slot('prepared', 'pgoutput', false, true)});
$subscriber->do(sprintf q{CREATE SUBSCRIPTION prepared CONNECTION %s PUBLICATION prepared
	WITH (create_slot = false, slot_name = 'prepared', two_phase = true, disable_on_error = true)},
	$subscriber->quote($node->connstr('publisher')));
$subscription = 'prepared';
is((await(
		sub { value($subscriber, q{SELECT subtwophasestate = 'e' FROM pg_subscription WHERE subname = 'prepared'}) },
		'two-phase commit to be replicated'))[0], '00000', 'a subscription with two-phase commit');
$publisher->do($_) for 'BEGIN', 'INSERT INTO public.prepared VALUES (1, 1, NULL)', q{PREPARE TRANSACTION 'x'};
is((await(sub { 0 }, 'the change to be refused'))[0], '0A000', 'cannot apply a prepared transaction');
is(value($subscriber, 'SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()'),
	0, 'P2: and leaves none behind');
$publisher->do(q{ROLLBACK PREPARED 'x'});

done_testing();
