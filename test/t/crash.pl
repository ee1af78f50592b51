# What a crash makes of transactions that had not committed, and what begins the
# time that leases are held for after it.
#
# Guards P5: a release or a takeover that did not commit was never there, so
# the old holder's lease is held; P1: the epoch of a grant that did not commit
# is not told again, and its token is nobody's.  And the start of the grace: the
# first bid, renewal or check after the restart, whatever election it is about;
# looking at a view begins nothing, however long that is before.
#
# restart.pl has the committed terms.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection qw(:DEFAULT kill_postmaster move_ahead);
use Test::More;

my $short = 0.3;    # seconds, a lease that is waited for to run out

sub wait_short
{
	my ($since) = @_;
	poll_until(sub { elapsed($since) > $short }, 'a lease to run out');
	return;
}

#
# Open transactions
#

my %crashes = (
	'immediate shutdown' => sub {
		my ($node) = @_;
		$node->stop('immediate');
		$node->start;
	},
	'death of the postmaster' => sub {
		my ($node) = @_;
		kill_postmaster($node);
		$node->start;
	},
	# That of the very backend whose transaction is open
	'death of the backend' => sub {
		my ($node, $open) = @_;
		my $witness = connect_to($node);

		kill 'KILL', backend_pid($open);
		poll_until(sub { sqlstate($witness, 'SELECT 1') ne '00000' },
			'the end of all sessions');
		$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()')
		  or die 'no restart';
	});

foreach my $preload (0, 1)
{
	my $node = new_node(
		"open$preload",
		preload => $preload,
		conf => 'restart_after_crash = on');
	move_ahead(connect_to($node));

	foreach my $crash (sort keys %crashes)
	{
		my $case = ($preload ? 'preloaded' : 'not preloaded') . ": $crash";
		my $dbh = connect_to($node);
		my %term = map { $_ => acquire($dbh, "$_, $crash", 'leader', '1 hour')->{epoch} }
		  qw(released published);
		value($dbh, q{SELECT leader_set_metadata(?, ?, '{"at": 1}')},
			"published, $crash", $term{published});
		$term{lapsed} = acquire($dbh, "lapsed, $crash", 'leader', "$short s")->{epoch};
		wait_short(now());

		# All in one transaction
		my $open = connect_to($node);
		$open->do('BEGIN');
		my %ghost = map { $_ => acquire($open, "$_, $crash", 'ghost', '1 hour')->{epoch} }
		  qw(granted lapsed);
		$ghost{session} =
		  value($open, 'SELECT epoch FROM leader_acquire_session(?)', "session, $crash");
		ok(value($open, 'SELECT leader_release(?, ?)', "released, $crash", $term{released}),
			"$case: a release in an open transaction");
		ok( value($open, q{SELECT leader_set_metadata(?, ?, '{"at": 2}')},
				"published, $crash", $term{published}),
			"$case: metadata too");
		my ($highest) = sort { $b <=> $a } values %ghost;

		$dbh->disconnect;
		$crashes{$crash}->($node, $open);
		$dbh = connect_to($node);

		# The view says what is held, and begins nothing.
		my $seen = row($dbh, 'SELECT * FROM leader_status WHERE election = ?', "lapsed, $crash");
		is("$seen->{state} by $seen->{leader}",
			'held by leader', "$case: P5: a lease is held whose takeover did not commit");
		is($seen->{epoch}, $term{lapsed}, "$case: P5: under its epoch");

		is(sqlstate($dbh, 'SELECT leader_fence(?, ?)', "lapsed, $crash", $ghost{lapsed}),
			'LE003', "$case: the other's token was never issued");
		is(sqlstate($dbh, 'SELECT leader_fence(?, ?)', "lapsed, $crash", $term{lapsed}),
			'00000', "$case: the old holder's is current");

		my $looked_at = now();
		my $renewed = renew($dbh, "released, $crash", $term{released});
		ok(is_leader($renewed), "$case: P5: a term goes on whose release did not commit");
		is($renewed->{epoch}, $term{released}, "$case: P5: under its epoch");
		ok(!is_leader(acquire($dbh, "released, $crash", 'rival', '1 hour')),
			"$case: P5: nobody else is let in");
		is( value($dbh, 'SELECT metadata FROM leader_status WHERE election = ?',
				"published, $crash"),
			'{"at": 1}', "$case: metadata that did not commit is not there");

		foreach my $election (qw(granted session))
		{
			ok(!is_leader(renew($dbh, "$election, $crash", $ghost{$election})),
				"$case: $election: a term that did not commit is not renewed");
			my $next = acquire($dbh, "$election, $crash", 'rival', '1 hour');
			ok(is_leader($next), "$case: $election: the election is free at once");
			cmp_ok($next->{epoch}, '>', $highest,
				"$case: $election: P1: no epoch is told again");
			is(sqlstate($dbh, 'SELECT leader_fence(?, ?)', "$election, $crash", $ghost{$election}),
				'LE001', "$case: $election: the token of the lost grant is stale");
		}

		my $early = 0;
		my $won = poll_until(
			sub {
				my $bid = acquire($dbh, "lapsed, $crash", 'rival', '1 hour');
				$early++ if is_leader($bid) && elapsed($looked_at) < $short;
				is_leader($bid) ? $bid : undef;
			},
			'the takeover');
		is($early, 0, "$case: P5: no takeover before one TTL from the first look");
		cmp_ok($won->{epoch}, '>', $highest, "$case: P1: it has a higher epoch");
		ok(!is_leader(renew($dbh, "lapsed, $crash", $term{lapsed})),
			"$case: whom it took over from cannot go on");
		is(sqlstate($dbh, 'SELECT leader_fence(?, ?)', "lapsed, $crash", $_),
			'LE001', "$case: both earlier tokens are stale")
		  for $term{lapsed}, $ghost{lapsed};
		check_tables($node, $case);
	}
	$node->stop;
}

#
# The first look
#

my %looks = (
	'a bid' => "SELECT leader_acquire('another', 'other', '1 hour')",
	'a renewal' => "SELECT leader_renew('unknown', 1)",
	'a renewal of all' => "SELECT * FROM leader_renew_all('nobody')",
	'a check' => "SELECT leader_check('another', 1)");

my $node = new_node('looks');
my $dbh = connect_to($node);

foreach my $look (sort keys %looks)
{
	my $status = 'SELECT *, expires_in = ttl AS full FROM leader_status WHERE election = ?';
	my $lease = acquire($dbh, $look, 'leader', "$short s");

	die 'no term' unless is_leader($lease);
	$node->stop('immediate');
	$node->start;
	$dbh = connect_to($node);

	# The view is looked at for more than a TTL.
	my ($since, $held, $full, $views) = (now(), 0, 0, 0);
	while (elapsed($since) <= $short || $views < 2)
	{
		my $seen = row($dbh, $status, $look);

		$views++;
		$held++ if $seen->{state} eq 'held' && $seen->{leader} eq 'leader';
		$full++ if $seen->{full};
	}
	is($held, $views, "$look: P5: held for as long as it is only looked at by the view");
	is($full, $views, "$look: P5: for one full TTL");

	my $looked_at = now();
	$dbh->do($looks{$look});

	# Again by the view, which does not begin it: that was the look.
	my $early = 0;
	poll_until(
		sub {
			my $gone = row($dbh, $status, $look)->{state} eq 'expired';

			$early++ if $gone && elapsed($looked_at) < $short;
			$gone;
		},
		'a lease to run out');
	is($early, 0, "$look: P5: it does not run out before one TTL from that look");
	my $next = acquire($dbh, $look, 'rival', '1 hour');
	ok(is_leader($next), "$look: P5: then the election of a dead holder is free");
	cmp_ok($next->{epoch}, '>', $lease->{epoch}, "$look: P1: with a higher epoch");
}

done_testing();
