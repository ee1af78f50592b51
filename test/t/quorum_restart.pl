# Guards P7 and the quorum rule (see quorum.pl) across a restart: leases from
# before it are nobody's until the standbys have answered something that was
# asked since then.  What they had before does not tell whether they still
# follow.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use Test::More;
use Time::HiRes qw(usleep);

my $hour = 3600;
my $leases = 20;
my $pause = 0.5;    # seconds between two records, for long leases

my $primary = new_node('primary', streaming => 1,
	conf => "synchronous_standby_names = ''");
$primary->safe_psql('postgres', 'CREATE EXTENSION pg_walinspect');
$primary->backup('backup');
my $standby = new_standby($primary, 'a', 'backup');
$standby->start;
rewrite_conf($primary, synchronous_standby_names => "'ANY 1 (a)'");
wal_receiver($standby);

my $dbh = connect_to($primary);
my $epoch = acquire($dbh, 'one', 'one', '1 hour')->{epoch};
value($dbh, "SELECT count(*) FROM generate_series(1, $leases) i,
	leader_acquire('many ' || i, 'many', '1 hour')");

sub renew_all
{
	return scalar @{
		column($dbh, q{SELECT election FROM leader_renew_all('many')}) };
}

sub nobody_leads
{
	my ($case) = @_;

	ok(!is_leader(renew($dbh, 'one', $epoch)), "$case: P7: no renewal");
	ok(!value($dbh, 'SELECT leader_check(?, ?)', 'one', $epoch),
		"$case: P7: leader_check is false");
	ok(!is_leader(acquire($dbh, 'one', 'one', '1 hour')),
		"$case: P7: nor by acquiring it again");
	is(renew_all(), 0, "$case: P7: leader_renew_all renews nothing");
	is( value($dbh, q{SELECT state FROM leader_status WHERE election = 'one'}),
		'unconfirmed', "$case: it is unconfirmed");
	my $bid = acquire($dbh, 'one', 'rival', '1 hour');
	ok(!is_leader($bid), "$case: P5: it is not free either");
	is($bid->{leader}, 'one', "$case: but held");
	return;
}

sub answered
{
	my ($case) = @_;

	poll_until(sub { is_leader(renew($dbh, 'one', $epoch)) },
		"$case: the lease to go on");
	is(renew($dbh, 'one', $epoch)->{epoch}, $epoch, "$case: P5: with its epoch");
	is(renew_all(), $leases, "$case: P5: and so do the others");
	ok(value($dbh, 'SELECT leader_check(?, ?)', 'one', $epoch),
		"$case: leader_check is true");

	# Goes on: a lease follows what is asked from now on.
	my $since = now();
	poll_until(sub { told(\&renew, $dbh, 'one', $epoch)->{ends_after} >= $since + $hour },
		"$case: the lease to follow the standby");
	return;
}

# The standby has all that was written before, and stops before the first look.
# What it has acknowledged by then does not tell whether it still follows.
{
	my $case = 'restart';

	$primary->restart;
	$dbh = connect_to($primary);
	poll_until(
		sub {
			thaw();
			# The catalogs are read, so that this writes no hints later.
			value($dbh, 'SELECT count(*) FROM leader_status');
			$dbh->do(q{EXPLAIN SELECT leader_renew('one', 1)});
			value($dbh, 'SELECT (NULL::leader_answer).epoch');
			# Not before it counts as a synchronous one is its answer noted.
			$dbh->do(q{SELECT pg_logical_emit_message(true, 'probe', '')});
			$primary->wait_for_catchup($standby, 'flush', $primary->lsn('flush'));
			freeze(wal_receiver($standby));
			wal_unflushed($dbh) == 0 && value($dbh,
				'SELECT flush_lsn = pg_current_wal_flush_lsn() FROM pg_stat_replication');
		},
		'the standby to have everything');
	nobody_leads($case);
	my $from = wal_position($dbh);
	my $since = now();
	my $renewed = 0;
	while (elapsed($since) < 2 * $pause)
	{
		$renewed += is_leader(renew($dbh, 'one', $epoch)) + renew_all();
		usleep(10_000);
	}
	is($renewed, 0, "$case: P7: nor later, as long as the standby is away");
	is(wal_records($dbh, $from)->{noop}, 0,
		"$case: one record at a time is under way");
	thaw();
	answered($case);
}

# A crash while the standby is away.
{
	my $case = 'crash';

	$standby->stop;
	$primary->stop('immediate');
	$primary->start;
	$dbh = connect_to($primary);
	nobody_leads($case);
	$standby->start;
	answered($case);
}

# A promotion is like a restart.
{
	my $case = 'promotion';

	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('flush'));
	$primary->stop('immediate');
	$standby->append_conf('postgresql.conf',
		"synchronous_standby_names = 'ANY 1 (nobody)'");
	$standby->reload;
	$standby->promote;
	$dbh = connect_to($standby);
	await_sync_commits($standby);
	nobody_leads($case);
	rewrite_conf($standby, synchronous_standby_names => "''");
	answered("$case, no standby wanted");
	check_tables($standby, $case);
}

done_testing();
