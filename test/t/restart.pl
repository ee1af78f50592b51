# What becomes of leases when the server restarts, crashes or fails over.
#
# Guards P5: a lease that was held is held for one more TTL from the first look
# after it; its holder goes on under the same epoch, and nobody takes over
# earlier; an election that was free is free at once.  And P1 across all of it.
#
# And session terms: their sessions are gone, so they have ended at once.
#
# Once with the memory made at first use, once preloaded.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection qw(:DEFAULT kill_postmaster);
use Test::More;

my $short = 1;    # seconds, a lease that is waited for to run out

sub restart_cleanly
{
	my ($node) = @_;
	$node->restart;
	return $node;
}

sub restart_immediately
{
	my ($node) = @_;
	$node->stop('immediate');
	$node->start;
	return $node;
}

# The server restarts by itself when one of its processes dies.
sub kill_backend
{
	my ($node) = @_;
	my $victim = connect_to($node);
	my $witness = connect_to($node);
	my $started = value($witness, 'SELECT pg_postmaster_start_time()');

	kill 'KILL', backend_pid($victim);
	poll_until(sub { sqlstate($witness, 'SELECT 1') ne '00000' },
		'the end of all sessions');
	$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()')
	  or die 'no restart';
	return $node;
}

# Nobody is left to tidy up.
sub kill_server
{
	my ($node) = @_;
	kill_postmaster($node);
	$node->start;
	return $node;
}

sub acquire_session
{
	my ($session, $election, $ttl) = @_;
	return row($session,
		'SELECT is_leader, epoch FROM leader_acquire_session(?, ?, ?::interval)',
		$election, 'leader', $ttl);
}

foreach my $preload (0, 1)
{
	my $mode = $preload ? 'preloaded' : 'not preloaded';
	my $primary = new_node(
		"node$preload",
		streaming => 1,
		preload => $preload,
		conf => 'restart_after_crash = on');

	$primary->backup('backup');
	my $standby = new_standby($primary, "standby$preload", 'backup');
	$standby->start;
	my $on_standby = connect_to($standby);

	# A session that was there before the promotion is used after it.
	my $dbh;
	my $fail_over = sub {
		$primary->wait_for_catchup($standby, 'replay',
			$primary->lsn('flush'));

		# Looking, before the promotion, must not count as the first look after.
		is( value($on_standby,
				"SELECT state FROM leader_status WHERE election = 'short'"),
			'held', "$mode: the standby has the terms");
		is(sqlstate($on_standby, "SELECT leader_check('short', 1)"),
			'25006', "$mode: and answers no check");
		my $since = now();
		poll_until(sub { elapsed($since) > $short }, 'a lease to run out');
		$primary->stop('immediate');
		$standby->promote;
		$dbh = $on_standby;
		return $standby;
	};

	my @disruptions = (
		[ 'clean restart', \&restart_cleanly ],
		[ 'immediate shutdown', \&restart_immediately ],
		[ 'death of a backend', \&kill_backend ],
		[ 'death of the postmaster', \&kill_server ],
		[ 'promotion', $fail_over ]);

	my $node = $primary;
	$dbh = connect_to($node);
	my $long = acquire($dbh, 'long', 'leader', '1 hour')->{epoch};
	my @epochs = ($long);
	my $free = acquire($dbh, 'free', 'leader', '1 hour');
	value($dbh, 'SELECT leader_release(?, ?)', 'free', $free->{epoch});
	push @epochs, $free->{epoch};

	foreach my $disruption (@disruptions)
	{
		my ($name, $disrupt) = @$disruption;
		my $case = "$mode: $name";

		# The rival of the last round may still lead.
		my $old = acquire($dbh, 'short', 'rival', '1 hour');
		push @epochs, $old->{epoch} if $old->{epoch} != $epochs[-1];
		value($dbh, 'SELECT leader_release(?, ?)', 'short', $old->{epoch});
		my $lease = acquire($dbh, 'short', 'leader', "$short s");
		push @epochs, $lease->{epoch};
		my $session = connect_to($node);
		my %sessions = (
			'session' => acquire_session($session, 'session', undef)->{epoch},
			'session with TTL' =>
			  acquire_session($session, 'session with TTL', '1 hour')->{epoch});
		push @epochs, sort { $a <=> $b } values %sessions;

		undef $dbh;
		$node = $disrupt->($node);
		$dbh //= connect_to($node);

		# The first look, then bids until one wins.
		my $looked_at = now();
		my $early = 0;
		my $first = acquire($dbh, 'short', 'rival', '1 hour');
		ok(!is_leader($first), "$case: P5: a held lease is held");
		is($first->{leader}, 'leader', "$case: by its holder");
		cmp_ok($first->{expires_in}, '<=', $short, "$case: for one TTL at most");

		my $bid = acquire($dbh, 'free', 'rival', '1 hour');
		ok(is_leader($bid), "$case: P5: a free election is free at once");
		push @epochs, $bid->{epoch};
		value($dbh, 'SELECT leader_release(?, ?)', 'free', $bid->{epoch});
		$bid = acquire($dbh, "new after $name", 'rival', '1 hour');
		ok(is_leader($bid), "$case: so is one that did not exist");
		push @epochs, $bid->{epoch};

		foreach my $election (sort { $sessions{$a} <=> $sessions{$b} } keys %sessions)
		{
			ok(!is_leader(renew($dbh, $election, $sessions{$election})),
				"$case: $election: the term of a session has ended");
			is( value($dbh, 'SELECT leader FROM leader_status WHERE election = ?', $election),
				undef, "$case: $election: nobody leads");
			$bid = acquire($dbh, $election, 'rival', '1 hour');
			ok(is_leader($bid), "$case: $election: it is free at once");
			push @epochs, $bid->{epoch};
			is(sqlstate($dbh, 'SELECT leader_fence(?, ?)', $election, $sessions{$election}),
				'LE001', "$case: $election: P2: its token is stale");
			value($dbh, 'SELECT leader_release(?, ?)', $election, $bid->{epoch});
		}

		# Whoever may renew still may, and nobody else is let in.
		my $other = acquire($dbh, 'long', 'rival', '1 hour');
		ok(!is_leader($other), "$case: P5: a long lease is held too");
		cmp_ok($other->{expires_in}, '>', 3000, "$case: for a full TTL");
		ok(value($dbh, 'SELECT leader_check(?, ?)', 'long', $long),
			"$case: P5: leader_check is true");
		is_deeply(
			column($dbh, "SELECT election FROM leader_renew_all('leader') WHERE election = 'long'"),
			['long'], "$case: P5: leader_renew_all finds it");
		my $renewed = renew($dbh, 'long', $long);
		ok(is_leader($renewed), "$case: P5: its holder goes on");
		is($renewed->{epoch}, $long, "$case: P5: under the same epoch");
		is(acquire($dbh, 'long', 'leader', '1 hour')->{epoch},
			$long, "$case: also by acquiring");
		is(sqlstate($dbh, 'SELECT leader_fence(?, ?)', 'long', $long),
			'00000', "$case: and its token is current");
		ok(!is_leader(renew($dbh, 'long', $long + 1)),
			"$case: an epoch that was not granted is not");

		my $won = poll_until(
			sub {
				my $bid = acquire($dbh, 'short', 'rival', '1 hour');
				$early++ if is_leader($bid) && elapsed($looked_at) < $short;
				is_leader($bid) ? $bid : undef;
			},
			'the takeover');
		is($early, 0, "$case: P5: no takeover before one TTL from the first look");
		push @epochs, $won->{epoch};
		ok(!is_leader(renew($dbh, 'short', $lease->{epoch})),
			"$case: whom it took over from cannot go on");
		is(sqlstate($dbh, 'SELECT leader_fence(?, ?)', 'short', $lease->{epoch}),
			'LE001', "$case: P2: and its token is stale");
		check_tables($node, $case);
	}

	is_deeply([ sort { $a <=> $b } @epochs ],
		\@epochs, "$mode: P1: epochs have grown all the time");
	my %seen;
	is(scalar(grep { $seen{$_}++ } @epochs), 0, "$mode: P1: and none came twice");
}

# A holder that is silent for a whole TTL after the restart has lost the lease,
# also if nobody has taken it.
{
	my $node = new_node('silent');
	my $dbh = connect_to($node);
	my $lease = acquire($dbh, 'silent', 'leader', "$short s");

	$node->restart;
	$dbh = connect_to($node);
	acquire($dbh, 'another', 'leader', '1 hour');
	my $looked_at = now();
	poll_until(sub { elapsed($looked_at) > $short }, 'a lease to run out');
	ok(!value($dbh, 'SELECT leader_check(?, ?)', 'silent', $lease->{epoch}),
		'P5: one TTL after the first look leader_check is false');
	ok(!is_leader(renew($dbh, 'silent', $lease->{epoch})),
		'P5: and the term cannot be renewed');
	is_deeply(column($dbh, "SELECT election FROM leader_renew_all('leader')"),
		['another'], 'nor by leader_renew_all');
	is(sqlstate($dbh, 'SELECT leader_fence(?, ?)', 'silent', $lease->{epoch}),
		'00000', 'its token is current until somebody takes over');
	cmp_ok(acquire($dbh, 'silent', 'leader', '1 hour')->{epoch},
		'>', $lease->{epoch}, 'acquiring it gives a new term');
}

done_testing();
