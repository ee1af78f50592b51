# Guards P7: a term is durable before its holder is told, whatever
# synchronous_commit says.  And the part of P1 that rests on it: an epoch that
# was told is not told again after a crash, even if its transaction never
# committed.
#
# Crashes are made such that nothing is written on the way: the process that
# would write the log in the background is frozen first.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use Test::More;

# Epochs far ahead of what the clock contributes to them, so that it cannot
# hide that the counter has gone back.
my $far_ahead = '1::bigint << 50';

# Freezes the background writing of the log, and answers who does it.
sub freeze_wal_writer
{
	my ($dbh) = @_;
	my $pid = poll_until(
		sub {
			value($dbh,
				"SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'");
		},
		'the WAL writer');

	kill 'STOP', $pid;
	return $pid;
}

#
# A crash right after a term was granted, or an epoch told
#

# Without replication there is nobody else who writes to the log.
my $node = new_node('single');

my %grants = (
	'off in the session' => [
		'SET synchronous_commit = off',
		"SELECT epoch FROM leader_acquire('%s', 'leader', '1 hour')"
	],
	'off after the grant' => [
		'BEGIN',
		"SELECT epoch FROM leader_acquire('%s', 'leader', '1 hour')",
		'SET LOCAL synchronous_commit = off',
		'COMMIT'
	],
	'off in a function' => [
		"SELECT epoch FROM leader_acquire('%s', 'leader', '1 hour'), set_config('synchronous_commit', 'off', true)",
	],
	'off in a subtransaction' => [
		'SET synchronous_commit = off',
		'BEGIN',
		'SAVEPOINT s',
		"SELECT epoch FROM leader_acquire('%s', 'leader', '1 hour')",
		'RELEASE s',
		'COMMIT'
	],
	'release, off' => [
		"SELECT epoch FROM leader_acquire('%s', 'leader', '1 hour')",
		'SET synchronous_commit = off',
		"SELECT leader_release('%s', %s)"
	],
	'metadata, off' => [
		"SELECT epoch FROM leader_acquire('%s', 'leader', '1 hour')",
		'SET synchronous_commit = off',
		q{SELECT leader_set_metadata('%s', %s, '{"at": 1}')}
	],
	'session term, off after the grant' => [
		'BEGIN',
		"SELECT epoch FROM leader_acquire_session('%s', 'leader')",
		'SET LOCAL synchronous_commit = off',
		'COMMIT'
	]);

# Runs statements; the answer is the epoch that they have told.
sub run_grant
{
	my ($dbh, $election, @sql) = @_;
	my $epoch;

	foreach my $sql (@sql)
	{
		$sql =~ s/%s/$election/;
		$sql =~ s/%s/$epoch/;
		if ($sql =~ /^SELECT epoch/)
		{
			$epoch = value($dbh, $sql);
		}
		else
		{
			$dbh->do($sql);
		}
	}
	return $epoch;
}

{
	my $monitor = connect_to($node);
	my $walwriter = freeze_wal_writer($monitor);
	my %epoch;

	foreach my $case (sort keys %grants)
	{
		my $dbh = connect_to($node);

		foreach my $round (1 .. 5)
		{
			my $election = "$case $round";

			$epoch{$election} = run_grant($dbh, $election, @{ $grants{$case} });
			is(wal_unflushed($monitor), 0,
				"P7: $case: all is written when the call returns, round $round");
		}
	}
	crash($node, $walwriter);
	$node->start;

	my %found = map { $_->{election} => $_ } @{
		connect_to($node)->selectall_arrayref('SELECT * FROM leader_status', { Slice => {} }) };
	foreach my $election (sort keys %epoch)
	{
		is($found{$election}->{epoch}, $epoch{$election},
			"P7: $election: the term is there after the crash");
		is( $found{$election}->{state},
			$election =~ /release/ ? 'free' : $election =~ /session term/ ? 'expired' : 'held',
			"P7: $election: and so is its state");
		is($found{$election}->{metadata}, '{"at": 1}', "P7: $election: and its metadata")
		  if $election =~ /metadata/;
	}
}

# The setting is the session's own again afterwards.
{
	my $dbh = connect_to($node);
	$dbh->do('SET synchronous_commit = off');
	acquire($dbh, 'setting', 'leader', '1 hour');
	is(value($dbh, 'SHOW synchronous_commit'),
		'off', 'synchronous_commit is left as the session wants it');
}

# An epoch shown by a transaction that does not come to its commit
my %told = (
	'open transaction' => [
		'BEGIN', "SELECT epoch FROM leader_acquire('%s', 'leader', '1 hour')"
	],
	'open transaction, off' => [
		'SET synchronous_commit = off', 'BEGIN',
		"SELECT epoch FROM leader_acquire('%s', 'leader', '1 hour')"
	],
	'rolled back' => [
		'BEGIN',
		"SELECT epoch FROM leader_acquire('%s', 'leader', '1 hour')", 'ROLLBACK'
	],
	'subtransaction rolled back' => [
		'BEGIN', 'SAVEPOINT s',
		"SELECT epoch FROM leader_acquire('%s', 'leader', '1 hour')",
		'ROLLBACK TO s'
	]);

foreach my $case (sort keys %told)
{
	my $dbh = connect_to($node);

	$dbh->do("SELECT setval('leader_election_epoch',
		greatest(last_value, $far_ahead)) FROM leader_election_epoch");
	my $walwriter = freeze_wal_writer($dbh);
	my $epoch = run_grant($dbh, "told $case", @{ $told{$case} });
	crash($node, $walwriter);
	$node->start;

	$dbh = connect_to($node);
	my $next = acquire($dbh, "told $case", 'other', '1 hour')->{epoch};
	cmp_ok($next, '>', $epoch, "P1: $case: an epoch that was told is not told again");

	# Whoever was told it is not taken for the next leader.
	is(sqlstate($dbh, 'SELECT leader_fence(?, ?)', "told $case", $epoch),
		'LE001', "P2: $case: it is stale");
	ok(!is_leader(renew($dbh, "told $case", $epoch)), "P1: $case: nor can it be renewed");
}

# What is told from within a statement reaches the client before the commit.
{
	my $dbh = connect_to($node);
	my $other = connect_to($node);
	my $walwriter = freeze_wal_writer($dbh);

	start_query($dbh, <<'EOC');
DO $$
DECLARE
    e bigint;
BEGIN
    SELECT epoch INTO e FROM leader_acquire('told in a block', 'leader', '1 hour');
    RAISE NOTICE 'epoch %', e;
    PERFORM pg_sleep(600);
END $$
EOC
	wait_for_state($other, backend_pid($dbh), qr/PgSleep/);
	my $epoch = value($other, 'SELECT last_value FROM leader_election_epoch');
	crash($node, $walwriter);
	$node->start;

	$dbh = connect_to($node);
	cmp_ok(acquire($dbh, 'told in a block', 'other', '1 hour')->{epoch},
		'>', $epoch, 'P1: an epoch told within a statement is not told again');
}
check_tables($node, 'after the crashes');

done_testing();
