# Guards the quorum rule behind P4: with synchronous standbys a lease lasts one
# TTL from the last time at which enough of them are known to have followed, so
# that a primary that was cut off stops keeping leaders alive.  And its price:
# a renewal waits for nobody, and few records are written for all leases
# together, only one of them at a time, and none without standbys.
#
# Leases of an hour show without waiting until when a lease was promised.  Only
# one case waits for the end of one.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use Test::More;
use Time::HiRes qw(usleep);

my $hour = 3600;
my $leases = 300;
my $pause = 0.5;    # seconds between two records, for long leases
# Times are told in whole microseconds.
my $precision = 0.001;

my $primary = new_node('primary', streaming => 1,
	conf => "synchronous_standby_names = ''");
$primary->safe_psql('postgres', 'CREATE EXTENSION pg_walinspect');
$primary->backup('backup');
my $standby = new_standby($primary, 'a', 'backup');
$standby->start;

my $dbh = connect_to($primary);
my $receiver = wal_receiver($standby);

# Commits wait for the standby from here on.
sub want_standby
{
	rewrite_conf($primary, synchronous_standby_names => "'ANY 1 (a)'");
	freeze($receiver);
	await_sync_commits($primary);
	return;
}

sub renew_all
{
	return { renewed => scalar @{
			column($dbh, q{SELECT election FROM leader_renew_all('many')}) } };
}

# Renews again and again for some seconds; the last answer.
sub renew_for
{
	my ($seconds, @renewal) = @_;
	my $since = now();
	my $last;

	while (elapsed($since) < $seconds)
	{
		$last = told(@renewal);
		return $last unless is_leader($last);
		usleep(10_000);
	}
	return $last;
}

# Does a lease go on, to a TTL from now or later?
sub follows
{
	my ($case, @renewal) = @_;
	my $since = now();

	my $last = poll_until(
		sub {
			my $renewed = told(@renewal);
			!is_leader($renewed) || $renewed->{ends_after} >= $since + $hour
			  ? $renewed
			  : undef;
		},
		"$case: a lease to follow the standby");
	ok(is_leader($last), "$case: the lease goes on");
	return $last;
}

#
# Without synchronous standbys
#

value($dbh, "SELECT count(*) FROM generate_series(1, $leases) i,
	leader_acquire('many ' || i, 'many', '1 hour')");
my $epoch = acquire($dbh, 'one', 'one', '1 hour')->{epoch};
my @one = (\&renew, $dbh, 'one', $epoch);
my $session = row($dbh,
	q{SELECT epoch FROM leader_acquire_session('session', 'session', '1 hour')});
my @session = (\&renew, $dbh, 'session', $session->{epoch});
my $endless = row($dbh,
	q{SELECT epoch FROM leader_acquire_session('endless', 'endless')})->{epoch};
{
	my $from = wal_position($dbh);
	my $since = now();
	my $less = 0;

	while (elapsed($since) < 2 * $pause)
	{
		renew_all();
		my $renewed = told(@one);
		$less++ if !is_leader($renewed) ||
		  $renewed->{ends_before} < $renewed->{asked} + $hour - $precision;
	}
	is($less, 0, 'without standbys each renewal is for a whole TTL');
	is_deeply(wal_records($dbh, $from), { noop => 0, other => [] },
		'without standbys renewals write nothing');
}

#
# With one
#

want_standby();
{
	my $promised = renew(@one[ 1 .. 3 ]);
	cmp_ok($promised->{expires_in}, '>', $hour - 600,
		'a lease from before standbys were wanted goes on');
}
thaw();

# However many leases there are, few records are written.
follows('first record', @one);
{
	my $from = wal_position($dbh);
	my $since = now();
	my $renewals = 0;

	while (elapsed($since) < 4 * $pause)
	{
		is(renew_all()->{renewed}, $leases, 'leader_renew_all renews all')
		  if $renewals == 0;
		foreach my $i (1 .. 50)
		{
			my ($election) = ('many ' . (1 + int rand $leases));
			acquire($dbh, $election, 'many');
			$renewals++;
		}
		renew_all();
	}
	my $seconds = elapsed($since);
	my $seen = wal_records($dbh, $from);

	note("$renewals renewals, $seen->{noop} records, $seconds seconds");
	cmp_ok($seen->{noop}, '<=', 1 + int($seconds / $pause),
		'at most two records in a second, whatever the number of leases');
	cmp_ok($seen->{noop}, '>', 0, 'but some');
	is_deeply($seen->{other}, [], 'and no others');
}
follows('renewed one by one', @one);
follows('a session term with a TTL', @session);

# Anywhere
{
	$dbh->do('BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY');
	follows('in a READ ONLY transaction', @one);
	$dbh->do('COMMIT');
	$dbh->do('BEGIN');
	follows('in a transaction block', @one);
	is(value($dbh, 'SELECT pg_current_xact_id_if_assigned()'),
		undef, 'no transaction id is taken');
	$dbh->do('ROLLBACK');
	follows('by leader_acquire', \&acquire, $dbh, 'one', 'one');
}

# A grant that was replicated says as much as a record.
{
	my $since = now();
	my $other = acquire($dbh, 'granted', 'other', '1 hour');

	ok(is_leader($other), 'a grant with its standby');
	freeze($receiver);
	my $renewed = told(@one);
	cmp_ok($renewed->{ends_before}, '>=', $since + $hour,
		'the standby vouches by a replicated grant');
	thaw();
	follows('after it', @one);
}

# What it acknowledges after a renewal counts for that one, though its holder was
# told less: who renews seldom must not lose the lease by that.
{
	follows('before a late acknowledgement', @one);
	freeze($receiver);
	usleep(2 * 500_000);
	my $renewed = told(@one);

	cmp_ok($renewed->{ends_before}, '<', $renewed->{asked} + $hour - 0.5,
		'a renewal that the standby has not acknowledged yet');
	thaw();
	my $seen = poll_until(
		sub {
			my $status = told(\&row, $dbh,
				q{SELECT extract(epoch FROM expires_in)::float8 AS expires_in
					FROM leader_status WHERE election = 'one'});
			$status->{ends_before} >= $renewed->{asked} + $hour - $precision
			  ? $status
			  : undef;
		},
		'the acknowledgement');
	ok($seen, 'counts when it has');
}

#
# The standby stops
#

# Whatever was written before this time may have been acknowledged.
follows('before the standby stops', @session);
my $bound = told(@one)->{answered} + $hour + $precision;
freeze($receiver);
usleep(300_000);
{
	my $from = wal_position($dbh);
	my $since = now();
	my @promised;

	while (elapsed($since) < 4 * $pause)
	{
		push @promised, told(@one);
		push @promised, told(@session);
		renew_all();
		usleep(10_000);
	}
	my @late = grep { $_->{ends_after} > $bound } @promised;
	is(scalar @late, 0,
		'P4: no lease is promised for longer than the standby has vouched for')
	  or diag($late[-1]->{ends_after} - $bound, ' seconds too long');
	is(scalar(grep { !is_leader($_) } @promised), 0, 'for so long leases go on');
	is_deeply(wal_records($dbh, $from), { noop => 1, other => [] },
		'one record at a time is under way');

	my @wrong = grep {
		abs($_->{step_down_after} - ($_->{expires_in} - $hour / 3)) > $precision
		  || abs($_->{retry_after} - $_->{step_down_after} / 2) > $precision
	} @promised;
	is(scalar @wrong, 0, 'P4: step_down_after and retry_after tell the same');

	$dbh->do('BEGIN READ ONLY');
	cmp_ok(told(@one)->{ends_after}, '<=', $bound,
		'P4: nor in a READ ONLY transaction');
	$dbh->do('COMMIT');
	cmp_ok(told(\&acquire, $dbh, 'one', 'one')->{ends_after}, '<=', $bound,
		'P4: nor by leader_acquire');
	my $all = told(\&row, $dbh,
		q{SELECT max(extract(epoch FROM expires_in))::float8 AS expires_in
			FROM leader_renew_all('many')});
	cmp_ok($all->{ends_after}, '<=', $bound, 'P4: nor by leader_renew_all');
	$all = told(\&row, $dbh,
		q{SELECT max(extract(epoch FROM expires_in))::float8 AS expires_in
			FROM leader_status WHERE state = 'held' AND election LIKE 'many%'});
	cmp_ok($all->{ends_after}, '<=', $bound, 'P4: leader_status agrees');
	is(value($dbh, 'SELECT leader_check(?, ?)', 'one', $epoch), 1,
		'leader_check is true');

	my $renewed = renew($dbh, 'endless', $endless);
	ok(is_leader($renewed) && !defined $renewed->{expires_in},
		'a session term without a TTL has no time to be vouched for');

	# A grant waits, renewals do not.
	my $client = connect_to($primary);
	start_query($client,
		q{SELECT is_leader FROM leader_acquire('waiting', 'waiting', '1 hour')});
	wait_for_state($dbh, backend_pid($client), qr/SyncRep/);
	ok(is_leader(renew(@one[ 1 .. 3 ])), 'a renewal does not wait');
	ok(!query_done($client), 'P7: a grant waits for the standby');
	thaw();
	my ($state, $rows) = finish_query($client);
	is($state, '00000', 'P7: until the standby is back');
	ok($rows->[0]->{is_leader}, 'and then it leads');
}

# A grant counts from when its clock was read, however long it had to wait: for
# the others, and for its own lease.
{
	my $ttl = 1;
	my $client = connect_to($primary);

	freeze($receiver);
	start_query($client,
		q{SELECT is_leader, epoch FROM leader_acquire('slow', 'slow', ?::interval)},
		"$ttl s");
	wait_for_state($dbh, backend_pid($client), qr/SyncRep/);
	my $since = now();
	poll_until(sub { elapsed($since) > $ttl }, 'the lease to run out');
	thaw();
	my ($state, $rows) = finish_query($client);
	is($state, '00000', 'a grant that waits for longer than its TTL is not ended');
	freeze($receiver);
	cmp_ok(told(@one)->{ends_after}, '<=', $since + $hour + $precision,
		'P4: it vouches for the time before its wait');
	ok(!value($dbh, 'SELECT leader_check(?, ?)', 'slow', $rows->[0]->{epoch}),
		'P4: its own lease is over');
	ok(!is_leader(renew($dbh, 'slow', $rows->[0]->{epoch})),
		'P4: and is not renewed');
	thaw();
	my $next = acquire($dbh, 'slow', 'next', '1 hour');
	ok(is_leader($next) && $next->{epoch} > $rows->[0]->{epoch},
		'the election is free for the next one');
}
follows('the standby is back', @one);
follows('the standby is back, session', @session);

# Standbys are no longer wanted, and wanted again.
{
	freeze($receiver);
	rewrite_conf($primary, synchronous_standby_names => "''");
	my $whole = poll_until(
		sub {
			my $renewed = told(@one);
			$renewed->{ends_before} >= $renewed->{asked} + $hour
			  ? $renewed
			  : undef;
		},
		'a renewal for a whole TTL');
	want_standby();
	my $bound = now() + $hour + $precision;
	my $last = renew_for(3 * $pause, @one);
	ok(is_leader($last), 'standbys are wanted again: the lease goes on');
	cmp_ok($last->{ends_before}, '>=', $whole->{ends_after} - $precision,
		'P4: and is not shorter than it was told');
	cmp_ok($last->{ends_after}, '<=', $bound, 'but becomes no longer');
	thaw();
	follows('wanted again', @one);
}

#
# A lease that nobody vouches for ends.
#

{
	my $ttl = 2;
	my $short = acquire($dbh, 'short', 'short', "$ttl s")->{epoch};
	my @short = (\&renew, $dbh, 'short', $short);
	my $answered = told(@short)->{answered};
	my $promised = 0;
	my $late = 0;

	freeze($receiver);
	poll_until(
		sub {
			my $renewed = told(@short);

			$promised = $renewed->{ends_after}
			  if is_leader($renewed) && $renewed->{ends_after} > $promised;
			$late++ if is_leader($renewed) &&
			  $renewed->{asked} > $answered + $ttl + $precision;
			!is_leader($renewed) && now() > $answered + $ttl + $pause;
		},
		'the end of a lease');
	is($late, 0, 'P4: a TTL after the standby has stopped, a lease has ended');
	cmp_ok($promised, '<=', $answered + $ttl + $precision,
		'P4: and was not promised for longer');
	ok(!value($dbh, 'SELECT leader_check(?, ?)', 'short', $short),
		'P4: leader_check is false');
	ok(is_leader(told(@one)), 'a longer one goes on');

	# Its record is acknowledged at last; that revives nothing.
	thaw();
	follows('after a short lease has ended', @one);
	ok(!is_leader(renew(@short[ 1 .. 3 ])), 'it does not come back');
	my $again = acquire($dbh, 'short', 'short', '1 hour');
	ok(is_leader($again) && $again->{epoch} > $short, 'the next term is a new one');
}

done_testing();
