# Locks: a change that had to queue for an election and then finds that it comes
# late, a cursor across savepoints, and the locks of leader_protect.
#
# Guards that a lock is kept exactly as long as what it is for.  Where nothing was
# changed, no time limit would end a transaction that sits on one (P3), and a
# prepared one would keep it for ever; where something was, a commit could pass by
# it (P2).  And that nobody queues for what is not his, or is left behind by
# DROP EXTENSION.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use Test::More;

my $node = new_node('main', conf => "deadlock_timeout = 10s\n");
my ($first, $late, $dbh) = map { connect_to($node) } 1 .. 3;

# The late one queues behind the first one's change and then gets its lock.  On a
# slow machine it may wait in vain, which is not what this is about: once more.
sub comes_late
{
	my ($statement) = @_;
	my $state;

	for my $try (1 .. 20)
	{
		my $term = acquire($dbh, 'queued', 'leader', '1 hour');

		$first->do('BEGIN');
		value($first, 'SELECT leader_release(?, ?)', 'queued', $term->{epoch});
		$late->do('BEGIN');
		start_query($late, $statement, $term->{epoch});
		wait_for_state($dbh, backend_pid($late), qr/Lock object|idle in transaction/);
		$first->do('COMMIT');
		my ($ended, $rows) = finish_query($late);
		return $rows->[0]->{did} if $ended eq '00000';
		is($ended, '55P03', 'it can wait in vain');
		$late->do('ROLLBACK');
	}
	return;
}

foreach my $late_change (
	[ 'release' => q{SELECT leader_release('queued', ?)::int AS did} ],
	[ 'metadata' => q{SELECT leader_set_metadata('queued', ?, '{}')::int AS did} ])
{
	my ($name, $statement) = @$late_change;
	my @warnings;

	local $SIG{__WARN__} = sub { push @warnings, @_ };
	is(comes_late($statement), 0, "$name: too late");
	is( value($late, q{SELECT count(*) FROM pg_locks WHERE locktype = 'object'
			AND classid = 'leader_election_state'::regclass AND pid = pg_backend_pid()}),
		0, "P3: $name: no lock is kept");
	is_deeply(\@warnings, [], "$name: and nothing to warn of");
	ok(is_leader(acquire($dbh, 'queued', 'next', '1 hour')),
		"P3: $name: others can acquire");
	$late->do('COMMIT');
	value($dbh, q{SELECT leader_release('queued', epoch) FROM leader_status});
}

# A cursor that was opened before a savepoint and fetched from after it
sub locks
{
	my ($session) = @_;
	return value($session, q{SELECT count(*) FROM pg_locks
		WHERE locktype = 'object' AND pid = pg_backend_pid()});
}

my $cursor = q{DECLARE c CURSOR FOR
	SELECT (leader_acquire(CASE i WHEN 3 THEN '' ELSE 'cursor ' || i END, 'leader', '1 hour')).epoch
	FROM generate_series(1, 3) i};

$late->do('BEGIN');
$late->do($cursor);
$late->do('SAVEPOINT s');
is(scalar @{ column($late, 'FETCH 2 FROM c') }, 2, 'cursor: grants after a savepoint');
cmp_ok(locks($late), '>', 0, 'cursor: hold locks');
$late->do('ROLLBACK TO s');
is(locks($late), 0, 'P3: cursor: none is left of what was rolled back');
ok(is_leader(acquire($dbh, "cursor $_", 'other', '1 hour')),
	"P3: cursor: others can acquire, $_")
  for 1, 2;
$late->do('COMMIT');
value($dbh, q{SELECT count(leader_release(election, epoch)) FROM leader_status
	WHERE leader IS NOT NULL});

# The other way: what stays has its locks, though the cursor has failed.
$late->do('BEGIN');
$late->do($cursor);
is(scalar @{ column($late, 'FETCH 2 FROM c') }, 2, 'failed cursor: grants');
my $held = locks($late);
cmp_ok($held, '>', 0, 'failed cursor: hold locks');
$late->do('SAVEPOINT s');
isnt(sqlstate($late, 'FETCH 1 FROM c'), '00000', 'failed cursor: an error after a savepoint');
$late->do('ROLLBACK TO s');
is(locks($late), $held, 'P2: failed cursor: the grants before keep their locks');
ok(!is_leader(acquire($dbh, "cursor 1", 'other', '1 hour')),
	'P2: failed cursor: nobody else can acquire');
$late->do('COMMIT');
is( value($dbh, q{SELECT count(leader_release(election, epoch)) FROM leader_status
		WHERE leader = 'leader' AND election LIKE 'cursor%'}),
	2, 'failed cursor: both terms are there');

# Who may not protect a table does not queue for its lock, which would hold up
# all writers behind it.
{
	my $stranger = connect_to($node);

	$dbh->do('CREATE TABLE victim (entry int)');
	$dbh->do('CREATE SCHEMA closed');
	$dbh->do('CREATE TABLE closed.victim (entry int)');
	$dbh->do('CREATE ROLE stranger');
	my $closed = value($dbh, q{SELECT 'closed.victim'::regclass::oid});

	$first->do('BEGIN');
	$first->do("LOCK TABLE $_ IN SHARE ROW EXCLUSIVE MODE")
	  for qw(victim closed.victim pg_foreign_server);
	$stranger->do("SET lock_timeout = '10s'");
	$stranger->do('SET ROLE stranger');
	foreach my $table ("'victim'", $closed, "'pg_foreign_server'")
	{
		is(sqlstate($stranger, "SELECT $_"), '42501', "refused at once: $_")
		  for "leader_protect($table, 'any')", "leader_unprotect($table)";
	}
	$first->do('ROLLBACK');
	$stranger->disconnect;
	$dbh->do('DROP SCHEMA closed CASCADE');
	$dbh->do('DROP TABLE victim');
	$dbh->do('DROP ROLE stranger');
}

# DROP EXTENSION while leader_protect() waits for the table
foreach my $call (q{leader_protect('victim', 'any')}, q{leader_unprotect('victim')})
{
	foreach my $drop ('DROP EXTENSION leader_election',
		'DROP EXTENSION leader_election CASCADE')
	{
		my $case = "$call, $drop";
		my $dropper = connect_to($node);

		$dbh->do('CREATE TABLE victim (entry int)');
		value($dbh, q{SELECT leader_protect('victim', 'any')}) if $call =~ /unprotect/;
		$first->do('BEGIN');
		$first->do('LOCK TABLE victim IN SHARE ROW EXCLUSIVE MODE');
		start_query($late, "SELECT $call");
		wait_for_state($dbh, backend_pid($late), qr/Lock relation/);
		start_query($dropper, $drop);
		poll_until(
			sub {
				query_done($dropper) || value($dbh,
					q{SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = ?},
					backend_pid($dropper));
			},
			'DROP EXTENSION');
		$first->do('COMMIT');

		my ($protected) = finish_query($late);
		my ($dropped) = finish_query($dropper);
		like($protected, qr/^(00000|55000)$/, "$case: it is done, or told why not");
		like($dropped, qr/^(00000|2BP01)$/, "$case: so is DROP EXTENSION");
		is(sqlstate($_, 'SELECT 1'), '00000', "$case: nobody has crashed")
		  for $late, $dropper, $dbh;
		like(sqlstate($dbh, 'INSERT INTO victim VALUES (1)'),
			$dropped eq '00000' ? qr/^00000$/ : qr/^(00000|LE002)$/,
			"$case: the table can be written, or its fence is whole");
		is(value($dbh, q{SELECT count(*) FROM pg_trigger WHERE NOT EXISTS
				(SELECT FROM pg_proc WHERE oid = tgfoid)}),
			0, "$case: no trigger is left without its function");
		$dropper->disconnect;
		$dbh->do('DROP TABLE victim');
		$dbh->do('DROP EXTENSION IF EXISTS leader_election CASCADE');
		$dbh->do('CREATE EXTENSION leader_election');
	}
}

done_testing();
