# What is configured for an election outlives what elections outlive: a crash, a
# restart, a dump.  And what a standby shows, and refuses.
#
# Guards 3.4: paused, the limits and the takeovers counted against them, the delay
# and the owner are there after a crash; after a restart the delay begins when the
# holder's grace is over (P5); memory does not fill up with elections that were
# dropped, or never came to be; reading the views is cheap.
#
# Once with the memory made at first use, once preloaded.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use Test::More;

sub status
{
	my ($dbh, $election) = @_;
	return row($dbh,
		'SELECT s.*, extract(epoch FROM s.expires_in) AS seconds FROM leader_status s WHERE election = ?',
		$election);
}

# Everything that is configured, as text
sub configured
{
	my ($dbh) = @_;
	return join "\n", @{
		column($dbh, <<'EOC') };
SELECT concat_ws(' | ', s.election, s.owner, c.paused, c.ttl, c.lock_delay, c.failover_limit, c.failover_window, c.takeovers)
  FROM leader_election_state s LEFT JOIN leader_election_config c USING (election)
 ORDER BY s.election
EOC
}

# A takeover: its session ends, and another one is there.
sub take_over
{
	my ($dbh, $election) = @_;
	value($dbh, 'SELECT pg_advisory_unlock_all()');
	return value($dbh, 'SELECT is_leader FROM leader_acquire_session(?, ?)', $election, 'holder ' . rand);
}

my $delay = 1.5;    # seconds
my $ttl = 1;

foreach my $preload (0, 1)
{
	my $mode = $preload ? 'preloaded' : 'not preloaded';
	my $node = new_node("node$preload", preload => $preload);
	my $dbh = connect_to($node);

	$dbh->do('CREATE ROLE operator');
	$dbh->do($_)
	  for "SELECT leader_configure('paused', ttl => '20 s', paused => true)",
	  "SELECT leader_configure('limited', failover_limit => 3, failover_window => '1 hour')",
	  "SELECT leader_configure('delayed', lock_delay => '$delay s')",
	  "SELECT leader_configure('owned', owner => 'operator', ttl => '1 hour')";
	take_over($dbh, 'limited') for 1 .. 3;
	is(value($dbh, "SELECT cardinality(takeovers) FROM leader_election_config WHERE election = 'limited'"),
		2, "$mode: takeovers were counted");
	my $delayed = acquire($dbh, 'delayed', 'holder', "$ttl s");
	my $before = configured($dbh);

	my $since;
	foreach my $how ('immediate', 'fast')
	{
		my $case = "$mode, $how restart";

		$node->stop($how);
		$node->start;
		$since = now();
		$dbh = connect_to($node);
		is(configured($dbh), $before, "$case: what is configured is there");
		is(status($dbh, 'paused')->{paused}, 1, "$case: so is the view of it");
		ok(!is_leader(acquire($dbh, 'paused', 'somebody', '1 hour')), "$case: paused is paused");
		is(value($dbh, 'SELECT count(terms) - coalesce(sum(renewals), 0) FROM leader_stats WHERE terms = 0'),
			4, "$case: statistics begin anew");
	}

	# The session that led ended with the server: the third takeover pauses.
	is(take_over($dbh, 'limited'), 1, "$mode: the third takeover is granted");
	is(status($dbh, 'limited')->{paused}, 1, "$mode: and the election pauses itself");
	value($dbh, "SELECT leader_configure('limited', paused => false)");

	# Whose time ran out after the restart is waited for, and the delay after that.
	my $bid;
	my $early = 0;
	poll_until(
		sub {
			$bid = acquire($dbh, 'delayed', 'rival', '1 hour');
			$early++ if is_leader($bid) && elapsed($since) < $ttl + $delay;
			is_leader($bid);
		},
		'the takeover');
	is($early, 0, "$mode: P5: nobody takes over before the grace and the delay are over");
	value($dbh, "SELECT leader_release('delayed', ?)", $bid->{epoch});

	# The holder need not wait for the delay, only others do.
	$delayed = acquire($dbh, 'delayed', 'holder', "$ttl s");
	$node->restart;
	$dbh = connect_to($node);
	poll_until(sub { status($dbh, 'delayed')->{state} eq 'held' && acquire($dbh, 'other', 'x', '1 hour')
				&& 1 }, 'the first look');
	$dbh->do("SELECT leader_configure('delayed', lock_delay => '1 hour')");
	poll_until(sub { status($dbh, 'delayed')->{state} eq 'expired' }, 'a lease to run out');
	ok(!is_leader(acquire($dbh, 'delayed', 'rival', '1 hour')), "$mode: others are kept away");
	my $again = acquire($dbh, 'delayed', 'holder', '1 hour');
	ok(is_leader($again), "$mode: the last holder is not");
	cmp_ok($again->{epoch}, '>', $delayed->{epoch}, "$mode: P1: by a new term");

	# A change that a crash comes before is not there, one that was committed is.
	my $open = connect_to($node);
	$open->do('BEGIN');
	$open->do("SELECT leader_configure('paused', paused => false, ttl => '1 s')");
	$dbh->do("SELECT leader_configure('owned', paused => true)");
	$node->stop('immediate');
	$node->start;
	$dbh = connect_to($node);
	is(status($dbh, 'paused')->{paused}, 1, "$mode: what had not committed is not there");
	is(status($dbh, 'owned')->{paused}, 1, "$mode: what had committed is");
	check_tables($node, $mode);
}

# One server for the rest, a database for each.
my $shared = new_node('shared', streaming => 1, conf => 'leader_election.max_leases = 11000');

sub new_database
{
	my ($name) = @_;
	$shared->safe_psql('postgres', "CREATE DATABASE $name");
	$shared->safe_psql($name, 'CREATE EXTENSION leader_election');
	return connect_to($shared, $name);
}

#
# Who waits is woken, and need not find out by itself that it may lead: once in a
# while that is seen to take less time than the second after which a waiting call
# looks by itself.
#
{
	my $dbh = new_database('woken');
	my %steps = (
		'resume' => [
			"SELECT leader_configure('woken', paused => true)",
			"SELECT leader_configure('woken', paused => false)" ],
		'no more delay' => [
			"SELECT leader_configure('woken', lock_delay => '1 hour')",
			"SELECT leader_configure('woken', lock_delay => '0')" ],
		'depose' => [
			"SELECT leader_acquire('woken', 'somebody', '1 hour')",
			"SELECT leader_depose('woken')" ]);

	foreach my $step (sort keys %steps)
	{
		my ($before, $then) = @{ $steps{$step} };
		my ($granted, $woken) = (0, 0);

		foreach my $round (1 .. 20)
		{
			my $waiter = connect_to($shared, 'woken');

			if ($step eq 'no more delay')
			{
				acquire($dbh, 'woken', 'silent', '100 ms');
				poll_until(sub { status($dbh, 'woken')->{state} eq 'expired' }, 'a lease to run out');
			}
			$dbh->do($before);
			start_query($waiter, "SELECT is_leader FROM leader_acquire('woken', 'waiter', '1 hour', '10 s')");
			wait_for_state($dbh, backend_pid($waiter), qr/Extension/);
			my $since = now();
			$dbh->do($then);
			my ($state, $rows) = finish_query($waiter);
			my $took = elapsed($since);
			$granted = $rows->[0]->{is_leader};
			$dbh->do("SELECT leader_depose('woken')");
			$waiter->disconnect;
			last if !$granted;
			$woken = $took < 0.5;
			last if $woken;
		}
		is($granted, 1, "$step: who waits leads");
		ok($woken, "$step: it is woken");
	}
	$dbh->disconnect;
}

#
# A dump
#
{
	my $dbh = new_database('dumped');
	my $node = $shared;

	$dbh->do('CREATE ROLE operator');
	$dbh->do($_)
	  for "SELECT leader_configure('one', ttl => '20 s', lock_delay => '10 s', failover_limit => 5, failover_window => '2 h', paused => true)",
	  "SELECT leader_configure('two', owner => 'operator', failover_limit => 3)",
	  "SELECT leader_configure('three', external => true)",
	  "SELECT leader_configure('dropped', paused => true)", "SELECT leader_drop('dropped')";
	take_over($dbh, 'two') for 1 .. 3;
	my $before = configured($dbh);
	my $last = value($dbh, "SELECT epoch FROM leader_status WHERE election = 'two'");
	$dbh->disconnect;

	my $dump = $node->data_dir . '/dump';
	$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, 'dumped' ], 'dumped');
	$node->safe_psql('postgres', 'CREATE DATABASE restored');
	$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', 'restored', $dump ], 'restored');
	$dbh = connect_to($node, 'restored');
	is(configured($dbh), $before, 'a dump keeps what is configured');
	ok(!is_leader(acquire($dbh, 'one', 'somebody', '1 hour')), 'paused is paused');
	is(value($dbh, "SELECT kind FROM leader_status WHERE election = 'three'"), 'external', 'external is external');
	is(take_over($dbh, 'two'), 1, 'a takeover is granted');
	is(status($dbh, 'two')->{paused}, 1, 'and counted together with those before the dump');
	cmp_ok(status($dbh, 'two')->{epoch}, '>', $last, 'P1: by a higher epoch');
	ok(is_leader(acquire($dbh, 'dropped', 'somebody', '1 hour')), 'of a dropped one nothing is left');
	$dbh->disconnect;
}

#
# Cheap enough to read every few seconds with many elections: how long that takes
#
{
	my $dbh = new_database('many');
	my $count = 10_000;

	$dbh->do(<<EOC);
DO \$\$
BEGIN
	FOR i IN 1..$count LOOP
		PERFORM leader_acquire('many ' || i, 'leader', '1 hour', metadata => '{"host": "one"}');
		PERFORM leader_configure('many ' || i, lock_delay => '1 s') WHERE i % 10 = 0;
		IF i % 500 = 0 THEN COMMIT; END IF;
	END LOOP;
END \$\$
EOC
	foreach my $view ('leader_status', 'leader_stats', 'leader_term')
	{
		my ($best, $rows);

		foreach my $round (1 .. 3)
		{
			my $since = now();
			$rows = value($dbh, "SELECT count(*) FROM $view");
			my $took = elapsed($since);
			$best = $took if !defined $best || $took < $best;
		}
		is($rows, $count, "$view shows all");
		diag(sprintf '%s of %d elections: %.0f ms', $view, $count, 1000 * $best);
	}
	$dbh->disconnect;
}

#
# A standby shows what the primary has written, and refuses what decides.
#
{
	my $primary = $shared;
	my $dbh = connect_to($primary);

	$dbh->do('CREATE ROLE member LOGIN');
	$dbh->do("SELECT leader_configure('lease', lock_delay => '1 s', paused => true)");
	$dbh->do("SELECT leader_configure('lease', paused => false)");
	my $lease = value($dbh, "SELECT epoch FROM leader_acquire('lease', 'leader', '1 hour', metadata => '{\"host\": 1}')");
	my $session = value($dbh, "SELECT epoch FROM leader_acquire_session('session', 'leader')");
	my $short = acquire($dbh, 'short', 'leader', '100 ms')->{epoch};
	my $freed = acquire($dbh, 'freed', 'leader', '1 hour')->{epoch};
	value($dbh, "SELECT leader_depose('freed')");
	$dbh->do("SELECT leader_configure('paused', paused => true)");
	$dbh->do("SELECT leader_configure('external', external => true)");

	$primary->backup('backup');
	my $standby = new_standby($primary, 'standby', 'backup');
	$standby->start;
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('flush'));
	my $there = connect_to($standby);

	my %shown = (
		lease => [ 'leader', 'lease', 'held', $lease ],
		session => [ 'leader', 'session', 'held', $session ],
		short => [ 'leader', 'lease', 'held', $short ],
		freed => [ undef, 'lease', 'free', undef ],
		paused => [ undef, 'lease', 'free', undef ],
		external => [ undef, 'external', 'free', undef ]);
	foreach my $election (sort keys %shown)
	{
		my ($here, $status) = (status($dbh, $election), status($there, $election));
		my ($leader, $kind, $state, $epoch) = @{ $shown{$election} };

		is($status->{leader}, $leader, "standby: $election: leader");
		is($status->{kind}, $kind, "standby: $election: kind");
		is($status->{state}, $state, "standby: $election: state");
		is($status->{epoch}, $epoch, "standby: $election: epoch") if $epoch;
		is($status->{epoch}, $here->{epoch}, "standby: $election: epoch as on the primary");
		is($status->{$_}, $here->{$_}, "standby: $election: $_ as on the primary")
		  for qw(paused ttl owner terms);
		is($status->{acquired_at}, $here->{acquired_at}, "standby: $election: acquired_at as on the primary");
		is($status->{$_}, undef, "standby: $election: no $_") for qw(expires_in pid);
	}
	is(status($there, 'lease')->{metadata}, '{"host": 1}', 'standby: metadata');
	is(value($there, "SELECT end_reason FROM leader_term WHERE election = 'freed'"), 'deposed', 'standby: the history');
	is(value($there, "SELECT count(*) FROM leader_term WHERE ended_at IS NULL"), 3, 'standby: terms that have not ended, as far as is known');
	is(value($there, 'SELECT count(*) FROM leader_stats'), 6, 'standby: statistics are listed');
	is(value($there, 'SELECT count(terms) + count(takeovers) + count(renewals) + count(losing_bids) + count(fenced_commits)
			+ count(rejected_stale) + count(stats_reset) FROM leader_stats'), 0, 'standby: and not known');
	is(value($there, 'SELECT count(*) FROM leader_protected'), 0, 'standby: protected tables');

	my $stranger = connect_to($standby, undef, user => 'member');
	is(value($stranger, 'SELECT count(leader) + count(epoch) + count(state) + count(metadata) FROM leader_status'),
		0, 'standby: strangers see names only');
	is(value($stranger, 'SELECT count(*) FROM leader_term'), 0, 'standby: and no terms');

	foreach my $call (
		"leader_depose('lease')", "leader_depose('freed')", "leader_depose('nothing')",
		"leader_drop('freed')", "leader_drop('nothing')", "leader_configure('lease', paused => true)",
		"leader_configure('nothing')", "leader_prune('1 hour')", 'leader_stats_reset()',
		"leader_stats_reset('lease')", "leader_acquire('freed', 'x')", "leader_renew('lease', $lease)",
		"leader_release('lease', $lease)", "leader_check('lease', $lease)", "leader_fence('lease', $lease)",
		"leader_set_metadata('lease', $lease, NULL)")
	{
		is(sqlstate($there, "SELECT $call"), '25006', "standby: $call is refused");
	}
	is(sqlstate($there, "SELECT * FROM leader_renew_all('leader')"), '25006', 'standby: leader_renew_all is refused');

	# Promoted, the same session sees all of it.
	$dbh->disconnect;
	$primary->stop('immediate');
	$standby->promote;
	is(status($there, 'session')->{state}, 'expired', 'promoted: the session has ended');
	is(status($there, 'paused')->{paused}, 1, 'promoted: paused is paused');
	cmp_ok(value($there, "SELECT leader_depose('lease')"), '>', $lease, 'promoted: the leader can be deposed');
	is(sqlstate($there, "SELECT leader_fence('lease', $lease)"), 'LE001', 'promoted: P2: and is fenced');
}

#
# Memory is finite: what is dropped, or never came to be, leaves room.
#
{
	my $places = 20;
	my $node = new_node('small', preload => 1, conf => "leader_election.max_leases = $places");
	my $dbh = connect_to($node);

	$dbh->do('CREATE ROLE flood LOGIN');
	my $flood = connect_to($node, undef, user => 'flood');

	# More elections than there are places, one after the other
	my @ends = (
		[ 'released and dropped', "PERFORM leader_release(n, e); PERFORM leader_drop(n);" ],
		[ 'deposed and dropped', "PERFORM leader_depose(n); PERFORM leader_drop(n);" ],
		[ 'rolled back', 'ROLLBACK;' ],
		[ 'given up in a block', undef ]);
	foreach my $end (@ends)
	{
		my ($what, $then) = @$end;
		my $body = $then ? "SELECT epoch INTO STRICT e FROM leader_acquire(n, 'x', '1 hour'); $then COMMIT;"
		  : "BEGIN PERFORM leader_acquire(n, 'x', '1 hour'); RAISE 'no'; EXCEPTION WHEN raise_exception THEN NULL; END; COMMIT;";

		is(sqlstate($flood, <<EOC), '00000', "$what: $places times five elections");
DO \$\$
DECLARE
	n text;
	e bigint;
BEGIN
	FOR i IN 1..5 * $places LOOP
		n := 'flood $what ' || i;
		$body
	END LOOP;
END \$\$
EOC
		acquire($dbh, 'probe', 'x', '1 hour');
		is(value($dbh, 'SELECT terms FROM leader_stats'), 1, "$what: what comes next is counted");
		value($dbh, "SELECT leader_depose('probe'), leader_drop('probe')");
	}
	is(value($dbh, 'SELECT count(*) FROM leader_status'), 0, 'nothing of them is left');

	# Those who lead have their place, and what happens to them is counted.
	my @epochs = map { acquire($dbh, "leader $_", 'leader', '1 hour')->{epoch} } 1 .. $places;
	is(scalar(grep { defined } @epochs), $places, 'as many leaders as there are places');
	is(value($dbh, 'SELECT count(terms) FROM leader_stats'), $places, 'all are counted');
	is(sqlstate($flood, "SELECT leader_acquire('one more', 'x', '1 hour')"), '53400', 'one more is refused');
	is(sqlstate($flood, "SELECT leader_acquire_session('one more', 'x')"), '53400', 'of a session too');
	is(value($dbh, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), 0, 'and leaves no lock');
	is(value($dbh, "SELECT count(*) FROM leader_status WHERE election = 'one more'"), 0, 'nor an election');
	is(scalar(grep { is_leader(renew($dbh, "leader $_", $epochs[$_ - 1])) } 1 .. $places),
		$places, 'the leaders go on');
	cmp_ok(value($dbh, "SELECT leader_depose('leader 1')"), '>', $epochs[0], 'one is deposed');
	is(value($flood, "SELECT is_leader FROM leader_acquire('one more', 'x', '1 hour')"), 1, 'then there is room');

	# Without the right to create, nothing is made, and memory stays as it is.
	$dbh->do('REVOKE USAGE ON SEQUENCE leader_election_epoch FROM PUBLIC');
	is(sqlstate($flood, "SELECT leader_acquire('squatted', 'x', '1 hour')"), '42501', 'without the right nothing is created');
	is(sqlstate($flood, "SELECT leader_configure('squatted')"), '42501', 'nor by configuring');
	is(value($flood, "SELECT is_leader FROM leader_acquire('one more', 'x', '1 hour')"), 1, 'who leads goes on');
}

done_testing();
