# The standby that grants wait for is gone, and the primary crashes while one
# waits: the term is in its log, but nobody was told, and no other server has
# it.
#
# Guards P7: the crash does not turn that term into one that counts.  So the
# standby may be promoted without it, and grant the election to somebody else.
# And what becomes of other changes whose wait is cut short.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection qw(:DEFAULT kill_postmaster move_ahead);
use Test::More;

my $primary = new_node('primary', streaming => 1);
my $dbh = connect_to($primary);

move_ahead($dbh);
$primary->backup('backup');
my $standby = new_standby($primary, 'standby', 'backup');
$standby->start;
$primary->append_conf('postgresql.conf', "synchronous_standby_names = 'standby'");
$primary->reload;
poll_until(
	sub { (value($dbh, 'SELECT sync_state FROM pg_stat_replication') // '') eq 'sync' },
	'the standby to be synchronous');

# One that the standby has, and the clients whose changes it will not get
my %received = map { $_ => acquire($dbh, $_, 'leader', '1 hour')->{epoch} }
  qw(received released);
my $session = connect_to($primary);
my $led_by_session =
  value($session, "SELECT epoch FROM leader_acquire_session('session received')");
ok(defined $led_by_session, 'a session leads');
$standby->stop('immediate');
poll_until(
	sub { value($dbh, 'SELECT count(*) FROM pg_stat_replication') == 0 },
	'the end of the standby');

# Sends a statement and waits until its commit waits for the standby.
sub start_commit
{
	my ($sql, @bind) = @_;
	my $client = connect_to($primary);

	start_query($client, $sql, @bind);
	wait_for_state($dbh, backend_pid($client), qr/SyncRep/);
	return $client;
}

# Changes whose wait is cancelled.
{
	my $client = start_commit('SELECT leader_release(?, ?)', 'released', $received{released});

	value($dbh, 'SELECT pg_cancel_backend(?)', backend_pid($client));
	my ($state, $rows) = finish_query($client);
	isnt($state, '00000', 'P7 (cancelled wait for the standby): a release: no success is shown');
	is_deeply($rows, [], 'P7 (cancelled wait for the standby): a release: nor an answer');
	isnt(sqlstate($client, 'SELECT 1'),
		'00000', 'P7 (cancelled wait for the standby): a release: the connection is lost');

	# The holder is the session, and the session is lost.
	$client = start_commit(q{SELECT * FROM leader_acquire_session('session')});
	value($dbh, 'SELECT pg_cancel_backend(?)', backend_pid($client));
	($state, $rows) = finish_query($client);
	isnt($state, '00000', 'P7 (cancelled wait for the standby): a session term: no success is shown');
	is_deeply($rows, [], 'P7 (cancelled wait for the standby): a session term: nor an epoch');
	isnt(sqlstate($client, 'SELECT 1'),
		'00000', 'P7 (cancelled wait for the standby): a session term: the connection is lost');
	poll_until(
		sub {
			!value($dbh, 'SELECT count(*) FROM pg_stat_activity WHERE pid = ?',
				backend_pid($client));
		},
		'the end of a session');
	is(value($dbh, "SELECT leader FROM leader_status WHERE election = 'session'"),
		undef, 'P7 (cancelled wait for the standby): and nobody leads by it');

	# A term from before is not touched.
	ok( is_leader(
			row($session, 'SELECT * FROM leader_renew(?, ?)', 'session received', $led_by_session)),
		'P7: a session term that the standby has goes on');
}

#
# Crash before the acknowledgement, renewal, failover
#

my $case = 'P7 (crash before the acknowledgement, renewal, failover)';
my %lost;

# Twice: each time the term of one more election is in the log and nowhere else.
foreach my $crash (
	[ 'immediate shutdown', sub { $primary->stop('immediate') } ],
	[ 'death of the postmaster', sub { kill_postmaster($primary) } ])
{
	my ($how, $disrupt) = @$crash;
	my $election = "lost by $how";
	my $client = start_commit(q{SELECT * FROM leader_acquire(?, 'leader', '1 hour')}, $election);

	ok(!query_done($client), "$case: $how: the grant waits");
	$disrupt->();
	my ($state, $rows) = finish_query($client);
	isnt($state, '00000', "$case: $how: the client sees no success");
	is_deeply($rows, [], "$case: $how: nor an epoch");
	$primary->start;
	$dbh = connect_to($primary);

	# What the crashed server knows: the term was written, and that is all.
	my $seen = row($dbh, 'SELECT * FROM leader_status WHERE election = ?', $election);
	$lost{$election} = $seen->{epoch};
	is($seen->{state}, 'unconfirmed', "$case: $how: the term is there, unconfirmed");
}
foreach my $election (sort keys %lost)
{
	my $lost = $lost{$election};

	ok(!is_leader(renew($dbh, $election, $lost)),
		"$case: $election: its holder cannot renew it");
	ok(!value($dbh, 'SELECT leader_check(?, ?)', $election, $lost),
		"$case: $election: leader_check is false");
	foreach my $holder ('leader', 'rival')
	{
		my $bid = acquire($dbh, $election, $holder, '1 hour');
		ok(!is_leader($bid) && !defined $bid->{epoch},
			"$case: $election: the bid of the $holder does not lead");
	}
	is(value($dbh, 'SELECT state FROM leader_status WHERE election = ?', $election),
		'unconfirmed', "$case: $election: none of that confirms it");
}
is( value($dbh, q{SELECT count(*) FROM leader_renew_all('leader') WHERE election LIKE 'lost%'}),
	0, "$case: leader_renew_all renews nothing of that");
check_tables($primary, 'after the crashes');

$primary->stop('immediate');
$standby->start;
$standby->promote;
$dbh = connect_to($standby);
my $highest = (sort { $b <=> $a } values %lost)[0];
foreach my $election (sort keys %lost)
{
	my $lost = $lost{$election};

	is(sqlstate($dbh, 'SELECT leader_fence(?, ?)', $election, $lost),
		'LE003', "$case: $election: the standby has never heard of its token");
	ok(!is_leader(renew($dbh, $election, $lost)), "$case: $election: nor of its term");
	my $next = acquire($dbh, $election, 'rival', '1 hour');
	ok(is_leader($next), "$case: $election: and grants the election at once");
	cmp_ok($next->{epoch}, '>', $highest, "$case: $election: P1: with a higher epoch");
	is(sqlstate($dbh, 'SELECT leader_fence(?, ?)', $election, $lost),
		'LE001', "$case: $election: then its token is stale");
	ok(!is_leader(renew($dbh, $election, $lost)), "$case: $election: it is not renewed either");
}
foreach my $election (qw(received released))
{
	my $renewed = renew($dbh, $election, $received{$election});

	ok(is_leader($renewed), "$case: $election: what was told to a client is there");
	is($renewed->{epoch}, $received{$election}, "$case: $election: with its epoch");
	ok(!is_leader(acquire($dbh, $election, 'rival', '1 hour')),
		"$case: $election: and nobody else leads");
}
is(value($dbh, "SELECT leader FROM leader_status WHERE election = 'session received'"),
	undef, "$case: a session of the old primary leads no more");
check_tables($standby, 'after the promotion');

done_testing();
