# A fenced commit that meets the next leader.
#
# Guards the bound of that commit's wait, and who gives way: a stale leader that
# holds a row for which the next leader waits must not drag that one into a
# deadlock, of which the server might choose the new leader as the victim.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use Test::More;

my $node = new_node('main');
my $dbh = connect_to($node);

$dbh->do('CREATE TABLE counters (id int PRIMARY KEY, value int)');
$dbh->do('INSERT INTO counters VALUES (1, 0)');

my $lock_event =
  $node->pg_version >= 17 ? qr/Extension LeaderElectionLock/ : qr/Extension/;

# The old leader has written and not yet committed, its lease has run out, and
# the next one has acquired in a transaction that is open.
sub stand_off
{
	my ($election) = @_;
	my $old = connect_to($node);
	my $new = connect_to($node);
	my $term = acquire($old, $election, 'old', '300 ms');

	$old->do('BEGIN');
	value($old, 'SELECT leader_fence(?, ?)', $election, $term->{epoch});
	$old->do('UPDATE counters SET value = 1 WHERE id = 1');

	$new->do('BEGIN');
	poll_until(
		sub { is_leader(acquire($new, $election, 'new', '1 hour')) },
		'the takeover');
	return ($old, $new);
}

# The cycle: the new leader waits for the old one's row, the old one's commit
# for the new one's lock.  With a deadlock detector that looks soon, and late.
foreach my $deadlock_timeout ('50 ms', '1 min')
{
	my ($old, $new) = stand_off("cycle $deadlock_timeout");

	$_->do("SET deadlock_timeout = '$deadlock_timeout'") for $old, $new;
	$old->do("SET leader_election.commit_timeout = '10 min'");
	start_query($new, 'UPDATE counters SET value = 2 WHERE id = 1');
	wait_for_state($dbh, backend_pid($new), qr/Lock transactionid/);

	start_query($old, 'COMMIT');
	is(finish_query($old), '55P03',
		"deadlock_timeout $deadlock_timeout: the old leader gives way at once");
	is(finish_query($new), '00000',
		"deadlock_timeout $deadlock_timeout: the new one gets the row");
	is(sqlstate($new, 'COMMIT'), '00000',
		"deadlock_timeout $deadlock_timeout: and commits");
	is(value($dbh, 'SELECT value FROM counters WHERE id = 1'),
		2, "deadlock_timeout $deadlock_timeout: its value stands");
}

# No cycle: the commit waits for as long as it may.
{
	my ($old, $new) = stand_off('timeout');

	$old->do("SET leader_election.commit_timeout = '300 ms'");
	my $since = now();
	is(sqlstate($old, 'COMMIT'), '55P03', 'a commit does not wait for ever');
	cmp_ok(elapsed($since), '>=', 0.3, 'but as long as it may');
	is(sqlstate($old, 'SELECT 1'), '00000', 'its session goes on');
	is(sqlstate($new, 'COMMIT'), '00000', 'the new leader commits');
	isnt(value($dbh, 'SELECT value FROM counters WHERE id = 1'),
		1, 'what the old one wrote is not there');
}

# The wait ends with the new leader's transaction.
foreach my $end ('ROLLBACK', 'COMMIT')
{
	my ($old, $new) = stand_off("ended by $end");

	$old->do("SET leader_election.commit_timeout = '10 min'");
	start_query($old, 'COMMIT');
	wait_for_state($dbh, backend_pid($old), $lock_event);
	ok(!query_done($old), "$end: the commit waits");
	$new->do($end);
	is(finish_query($old), $end eq 'ROLLBACK' ? '00000' : 'LE001',
		"P2: $end of the new leader decides");
}
is(value($dbh, 'SELECT value FROM counters WHERE id = 1'),
	1, 'a takeover that was rolled back has not harmed the old leader');

# It can be cancelled, and the session ended.
{
	my ($old, $new) = stand_off('cancelled');

	$old->do("SET leader_election.commit_timeout = '10 min'");
	start_query($old, 'COMMIT');
	wait_for_state($dbh, backend_pid($old), $lock_event);
	value($dbh, 'SELECT pg_cancel_backend(?)', backend_pid($old));
	is(finish_query($old), '57014', 'the wait of a commit can be cancelled');
	is(sqlstate($old, 'SELECT 1'), '00000', 'its session goes on');
	$new->do('ROLLBACK');

	($old, $new) = stand_off('terminated');
	$old->do("SET leader_election.commit_timeout = '10 min'");
	start_query($old, 'COMMIT');
	wait_for_state($dbh, backend_pid($old), $lock_event);
	value($dbh, 'SELECT pg_terminate_backend(?)', backend_pid($old));
	is(finish_query($old), '57P01', 'and its session ended');
	is(sqlstate($new, 'COMMIT'), '00000', 'the new leader commits');
}

done_testing();
