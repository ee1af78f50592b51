# leader_acquire(wait => ...) waits inside the server: it wakes at the release
# and at the expiry, and every way to end a statement or a session ends it.
#
# Guards P6 too: neither a losing bid, waiting or not, nor a renewal writes to
# the log, takes a transaction id or keeps a lock.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use Test::More;

my $node = new_node('main');
my $dbh = connect_to($node);
my $waiter = connect_to($node);
my $pid = backend_pid($waiter);

# Waits end after 10 s at the latest, so a wait that nothing woke loses; and
# the wait event is the extension's own where the server has names for those.
my $event = $node->pg_version >= 17 ? qr/Extension LeaderElectionAcquire/ : qr/Extension/;
my $bid = "SELECT is_leader, epoch, leader FROM leader_acquire('%s', 'waiter', '1 hour', '10 s')";

sub start_bid
{
	my ($election) = @_;
	start_query($waiter, sprintf $bid, $election);
	wait_for_state($dbh, $pid, $event);
	return;
}

# Woken by what ends the term
my $term = acquire($dbh, 'released', 'leader', '1 hour');
my $since = now();
start_bid('released');
value($dbh, 'SELECT leader_release(?, ?)', 'released', $term->{epoch});
my ($state, $rows) = finish_query($waiter);
is($state, '00000', 'woken by a release');
ok($rows->[0]->{is_leader}, 'the waiter is leader then');
cmp_ok($rows->[0]->{epoch}, '>', $term->{epoch}, 'P1: with a higher epoch');

# A release counts when it has committed, and not at all if it does not.
$term = acquire($dbh, 'rolled back', 'leader', '1 hour');
start_bid('rolled back');
$dbh->do('BEGIN');
value($dbh, 'SELECT leader_release(?, ?)', 'rolled back', $term->{epoch});
$dbh->do('ROLLBACK');
ok(is_leader(renew($dbh, 'rolled back', $term->{epoch})),
	'P4: the holder goes on after a release that was rolled back');
wait_for_state($dbh, $pid, $event);
ok(!query_done($waiter), 'the waiter waits on');
$dbh->do('BEGIN');
value($dbh, 'SELECT leader_release(?, ?)', 'rolled back', $term->{epoch});
wait_for_state($dbh, $pid, $event);
ok(!query_done($waiter), 'P4: an open release lets nobody in');
$dbh->do('COMMIT');
($state, $rows) = finish_query($waiter);
ok($rows->[0]->{is_leader}, 'its commit does');

# Woken by the expiry, and not before it
$since = now();
$term = acquire($dbh, 'expires', 'leader', '1 s');
start_query($waiter, sprintf $bid, 'expires');
($state, $rows) = finish_query($waiter);
ok($rows->[0]->{is_leader}, 'woken by the expiry');
cmp_ok(elapsed($since), '>=', $term->{expires_in}, 'P4: and not before it');

# As long as it is renewed it does not expire.
$term = acquire($dbh, 'renewed', 'leader', '1 minute');
$since = now();
start_query($waiter,
	"SELECT is_leader, leader FROM leader_acquire('renewed', 'waiter', '1 hour', '1500 ms')");
my $renewals = 0;
poll_until(
	sub { renew($dbh, 'renewed', $term->{epoch}); $renewals++; query_done($waiter) },
	'the end of the wait');
($state, $rows) = finish_query($waiter);
ok(!$rows->[0]->{is_leader}, 'a wait that nothing ends is lost');
is($rows->[0]->{leader}, 'leader', 'to the leader');
cmp_ok(elapsed($since), '>=', 1.5, 'after as long as was asked for');

# Several waiters: one wins, the others wait on.
$term = acquire($dbh, 'crowd', 'leader', '1 hour');
my @crowd = map { connect_to($node) } 1 .. 5;
start_query($crowd[$_],
	"SELECT is_leader, leader FROM leader_acquire('crowd', 'waiter $_', '1 hour', '10 s')")
  for 0 .. $#crowd;
wait_for_state($dbh, backend_pid($_), $event) for @crowd;
value($dbh, 'SELECT leader_release(?, ?)', 'crowd', $term->{epoch});
my ($winner) = @{ poll_until(
		sub { my @done = grep { query_done($_) } @crowd; @done ? \@done : undef },
		'the first waiter') };
my @others = grep { $_ != $winner } @crowd;
wait_for_state($dbh, backend_pid($_), $event) for @others;
($state, $rows) = finish_query($winner);
ok($rows->[0]->{is_leader}, 'of several waiters one is leader');
is( value($dbh, "SELECT leader FROM leader_status WHERE election = 'crowd'"),
	$rows->[0]->{leader}, 'the one that the view names');
ok(!query_done($_), 'and another waits on') for @others;
value($dbh, 'SELECT pg_cancel_backend(?)', backend_pid($_)) for @others;
is(finish_query($_), '57014', 'until it is cancelled') for @others;

# Every way to end it
acquire($dbh, 'held', 'leader', '1 hour');
start_bid('held');
value($dbh, 'SELECT pg_cancel_backend(?)', $pid);
is(finish_query($waiter), '57014', 'pg_cancel_backend ends the wait');
is(sqlstate($waiter, 'SELECT 1'), '00000', 'the session goes on');

$waiter->do("SET statement_timeout = '200 ms'");
start_query($waiter, sprintf $bid, 'held');
is(finish_query($waiter), '57014', 'statement_timeout ends the wait');
$waiter->do('RESET statement_timeout');

# After an ended wait, what it waited for can be had as if nothing had been.
start_bid('held');
value($dbh, 'SELECT pg_terminate_backend(?)', $pid);
is(finish_query($waiter), '57P01', 'pg_terminate_backend ends the wait');
poll_until(
	sub { !value($dbh, 'SELECT count(*) FROM pg_stat_activity WHERE pid = ?', $pid) },
	'the end of the session');
$waiter = connect_to($node);
$pid = backend_pid($waiter);
is(value($dbh, "SELECT leader_release('held', s.epoch) FROM leader_status s WHERE election = 'held'"),
	1, 'nothing is left behind: the election can be released');
ok(is_leader(acquire($waiter, 'held', 'waiter', '1 hour')), 'and acquired');

# P6.  Calls, each for itself, with nobody else at work.
$node->safe_psql('postgres', 'CHECKPOINT');
$term = acquire($dbh, 'quiet', 'leader', '1 hour');
my %free_of_charge = (
	'a losing bid' =>
	  "SELECT count(*) FROM generate_series(1, 1000) i, LATERAL leader_acquire('quiet', 'loser ' || i) a WHERE NOT a.is_leader",
	'a renewal' =>
	  "SELECT count(*) FROM generate_series(1, 1000) i, LATERAL leader_renew('quiet', $term->{epoch} + i - i) a WHERE a.is_leader",
	'a renewal by acquiring' =>
	  "SELECT count(*) FROM generate_series(1, 1000) i, LATERAL leader_acquire('quiet', left('leader' || i, 6)) a WHERE a.is_leader",
	'a check' =>
	  "SELECT count(*) FROM generate_series(1, 1000) i WHERE leader_check('quiet', $term->{epoch} + i - i)",
	'a stale renewal' =>
	  "SELECT count(*) FROM generate_series(1, 1000) i, LATERAL leader_renew('quiet', $term->{epoch} - i) a WHERE NOT a.is_leader",
	'renewing all' =>
	  "SELECT count(*) FROM generate_series(1, 1000) i, LATERAL leader_renew_all(left('leader' || i, 6)) a WHERE a.election = 'quiet'",
	'a release of a term that ended' =>
	  "SELECT count(*) FROM generate_series(1, 1000) i WHERE NOT leader_release('quiet', $term->{epoch} - i)");

# Hint bits and the like are set by the first reader.
value($waiter, $_) for values %free_of_charge;
foreach my $what (sort keys %free_of_charge)
{
	my $before = row($dbh,
		'SELECT pg_current_wal_insert_lsn() AS lsn, pg_snapshot_xmax(pg_current_snapshot()) AS xid');

	$waiter->do('BEGIN');
	is(value($waiter, $free_of_charge{$what}), 1000, "$what: as meant");
	is(value($waiter, 'SELECT pg_current_xact_id_if_assigned()'),
		undef, "P6: $what takes no transaction id");
	is_deeply(
		$dbh->selectall_arrayref(
			"SELECT locktype, mode FROM pg_locks WHERE pid = ? AND locktype NOT IN ('virtualxid', 'relation')",
			{}, $pid),
		[], "P6: $what keeps no lock");
	is_deeply(
		$dbh->selectall_arrayref(
			"SELECT mode FROM pg_locks WHERE pid = ? AND locktype = 'relation' AND mode <> 'AccessShareLock'",
			{}, $pid),
		[], "P6: $what keeps no lock on a table that would hinder a writer");
	$waiter->do('COMMIT');

	my $after = row($dbh,
		'SELECT pg_current_wal_insert_lsn() - ? AS bytes, pg_snapshot_xmax(pg_current_snapshot()) AS xid',
		$before->{lsn});
	is($after->{bytes}, 0, "P6: $what writes nothing to the log");
	is($after->{xid}, $before->{xid}, "P6: $what takes no transaction id from the server");
}

# One that waits costs nothing either, while it waits and after.
my $before = value($dbh, 'SELECT pg_current_wal_insert_lsn()');
start_query($waiter,
	"SELECT is_leader FROM leader_acquire('quiet', 'loser', '1 hour', '1 s')");
wait_for_state($dbh, $pid, $event);
is_deeply(
	$dbh->selectall_arrayref(
		"SELECT locktype, mode FROM pg_locks WHERE pid = ? AND locktype NOT IN ('virtualxid', 'relation')",
		{}, $pid),
	[], 'P6: a waiting bid holds no lock');
($state, $rows) = finish_query($waiter);
ok(!$rows->[0]->{is_leader}, 'a waiting bid, lost');
is(value($dbh, 'SELECT pg_current_wal_insert_lsn() - ?', $before),
	0, 'P6: a waiting bid writes nothing to the log');

# Waiting does not need a transaction that may write.
is(sqlstate($waiter, "BEGIN READ ONLY"), '00000', 'read only');
is(sqlstate($waiter, "SELECT leader_acquire('quiet', 'loser', '1 hour', '100 ms')"),
	'00000', 'a losing bid may wait in a read only transaction');
$waiter->do('ROLLBACK');

done_testing();
