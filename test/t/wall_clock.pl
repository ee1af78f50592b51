# The wall clock is set forward and back by an hour, and runs too fast, under a
# running server: no lease becomes shorter or longer by it, nothing that waits
# is woken too early or forgotten, and epochs grow all the same.
#
# Guards P4: leases are measured on the server's monotonic clock alone, so the
# wall clock may do what it likes, and so may now() and the time zone; where the
# monotonic clock itself is fast, a lease is shorter by that rate and by nothing
# else.  And P1: the wall clock is only a lower bound of an epoch, also after a
# restart, and after DROP and CREATE EXTENSION.  Also the history: a term never
# ends before it begins, or a range of the two times would be an error.
#
# The server runs with libfaketime, the test does not: what it measures on its
# own monotonic clock is true.  Whether the server's clock did what it was told
# to is observed each time, as a fault that does not happen proves nothing.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes ();

my ($faketime) = grep { -e $_ }
  glob('/usr/lib/*/faketime/libfaketime.so.1 /usr/*/faketime/libfaketime.so.1'
	  . ' /usr/local/lib/faketime/libfaketime.so.1');
plan skip_all => 'libfaketime is not installed' unless $faketime;

my $hour = 3600;      # seconds, how far the clock is set, and a TTL
my $short = 2;        # seconds, a lease that is waited for to run out
my $much_later = 600; # seconds, what an hour's difference cannot be missed by
my $rate = 1.05;
my $slack = 0.001;    # seconds, for what is rounded

# How fast the server's monotonic clock runs by that of the test.
my $speed = 1;

my $clock_file = PostgreSQL::Test::Utils::tempdir() . '/clock';
my $node = new_node('main');
my ($dbh, $rival);

# Of all terms, in the order of their grants
my @epochs;

#
# The server's clock
#

# It follows the file at every reading.
sub set_clock
{
	my ($setting) = @_;

	open(my $file, '>', "$clock_file.new") or die "$clock_file.new: $!";
	print $file "$setting\n";
	close $file;
	rename("$clock_file.new", $clock_file) or die "$clock_file: $!";
	return;
}

# Whoever asks the server by these is told what the file says.
sub start_server
{
	my (%params) = @_;

	local $ENV{LD_PRELOAD} = $faketime;
	local $ENV{FAKETIME_TIMESTAMP_FILE} = $clock_file;
	local $ENV{FAKETIME_NO_CACHE} = 1;
	local $ENV{FAKETIME_DONT_FAKE_MONOTONIC} = $params{fake_monotonic} ? 0 : 1;
	local $ENV{NO_FAKE_STAT} = 1;
	$node->start;
	$dbh = connect_to($node);
	$rival = connect_to($node);
	return;
}

sub server_time
{
	return value($_[0], 'SELECT extract(epoch FROM clock_timestamp())::float8');
}

# Is the server's wall clock that far ahead of the test's, for a session that
# was there and for a new one?
sub clock_is_ahead
{
	my ($ahead, $case) = @_;

	foreach my $session ($dbh, connect_to($node))
	{
		my $before = Time::HiRes::time();
		my $time = server_time($session) - $ahead;
		my $after = Time::HiRes::time();

		ok($time > $before - 60 && $time < $after + 60,
			"$case: the server's wall clock was set")
		  or diag("it is ahead by " . ($time + $ahead - $after));
	}
	return;
}

#
# Leases whose length is known
#

sub take
{
	my ($election, $ttl, %params) = @_;
	my $sent = now();
	my $answer = acquire($params{session} // $dbh, $election,
		$params{holder} // 'leader', "$ttl s");

	die "no term of $election" unless is_leader($answer);
	push @epochs, $answer->{epoch};
	return {
		election => $election, epoch => $answer->{epoch}, ttl => $ttl,
		sent => $sent, answered => now() };
}

sub take_session
{
	my ($session, $election, $ttl) = @_;
	my $sent = now();
	my $epoch = value($session,
		'SELECT epoch FROM leader_acquire_session(?, ?, make_interval(secs => ?))',
		$election, 'leader', $ttl);

	die "no term of $election" unless defined $epoch;
	push @epochs, $epoch;
	return {
		election => $election, epoch => $epoch, ttl => $ttl // 0,
		sent => $sent, answered => now() };
}

# A lease that has run out meanwhile, as machines can be slow, keeps its times.
sub extend
{
	my ($lease, $session) = @_;
	my $sent = now();
	my $renewed = is_leader(
		renew($session // $dbh, $lease->{election}, $lease->{epoch}));

	@$lease{qw(sent answered)} = ($sent, now()) if $renewed;
	return $renewed;
}

# Is what the server says to be left of a lease what must be left?
sub left_is_right
{
	my ($lease, $case, $sql) = @_;
	my $asked = now();
	my $left = value($dbh, "SELECT extract(epoch FROM expires_in)::float8 FROM $sql",
		$lease->{election});
	my $least = $lease->{ttl} - $speed * elapsed($lease->{sent}) - $slack;
	my $most = $lease->{ttl} - $speed * ($asked - $lease->{answered}) + $slack;

	ok(defined $left && $left >= $least && $left <= $most, "P4: $case")
	  or diag(sprintf '%s are left, and it must be %f to %f',
		$left // 'none', $least, $most);
	return;
}

# A lease of which much is left is as good as before.
sub holds_on
{
	my ($lease, $case, $session) = @_;
	my ($election, $epoch) = @$lease{qw(election epoch)};
	$session //= $dbh;

	ok(value($session, 'SELECT leader_check(?, ?)', $election, $epoch),
		"P4: $case: leader_check is true");
	my $other = acquire($rival, $election, 'rival', '1 hour');
	ok(!is_leader($other), "P4: $case: nobody takes it over");
	is($other->{leader}, 'leader', "$case: its holder is named");
	is( value($dbh, 'SELECT state FROM leader_status WHERE election = ?', $election),
		'held', "$case: it is shown as held");
	return unless $lease->{ttl};
	left_is_right($lease, "$case: what is left, in leader_status",
		'leader_status WHERE election = ?');
	left_is_right($lease, "$case: what is left, for a loser",
		"leader_acquire(?, 'loser', '1 hour')");
	ok(extend($lease, $session), "P4: $case: its holder renews it");
	left_is_right($lease, "$case: what is left of the renewed one",
		'leader_status WHERE election = ?');
	return;
}

# In what the history says of a term
sub ended_as
{
	my ($lease, $reason, $case) = @_;
	my $term = row($dbh,
		q{SELECT end_reason, ended_at >= acquired_at AS ordered,
				 format('from %s to %s', acquired_at, ended_at) AS times
			FROM leader_term WHERE election = ? AND epoch = ?},
		$lease->{election}, $lease->{epoch});

	is($term->{end_reason}, $reason, "$case: end_reason");
	ok($term->{ordered}, "$case: did not end before it began")
	  or diag($term->{times});
	return;
}

# Since the last time that it was asked
my $judged = 0;

sub epochs_grow
{
	my ($case) = @_;
	my @wrong =
	  grep { $epochs[$_] <= $epochs[ $_ - 1 ] } $judged + 1 .. $#epochs;

	is_deeply(\@wrong, [], "P1: $case: epochs grow");
	$judged = $#epochs;
	return;
}

#
# One fault, while leases are held, renewed and waited for
#

# Starts a statement that will wait inside the server, and sees it wait.
sub start_waiting
{
	my ($election, $wait) = @_;
	my $session = connect_to($node);
	my $sent = now();

	start_query($session,
		"SELECT is_leader, epoch FROM leader_acquire(?, 'waiter', '1 hour', ?::interval)",
		$election, $wait);
	poll_until(
		sub {
			query_done($session) || value($dbh,
				q{SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = ?},
				backend_pid($session));
		},
		'a bid to wait');
	return ($session, $sent);
}

sub go_through
{
	my ($case, $fault) = @_;
	my $holder = connect_to($node);
	my $old_transaction = connect_to($node);
	my (@ends, $sitter, $sitting);

	# Waits for the end of a lease by bidding for it.
	my $awaited = sub {
		my ($name, $lease) = @_;
		my $bid = sub {
			my $won = acquire($rival, $lease->{election}, 'rival', '1 hour');
			push @epochs, $won->{epoch} if is_leader($won);
			return is_leader($won);
		};
		push @ends,
		  { name => $name, lease => $lease, ended => $bid };
	};

	my $unwanted = take("unwanted, $case", $short);
	my $alone = take("left alone, $case", $short);
	my $in_session = take_session($holder, "in a session, $case", $short);
	my $renewed = take("renewed, $case", $short);
	my $renewed_later = take("renewed later, $case", $short);
	my $waited_for = take("waited for, $case", $short);
	my $long = take("long, $case", $hour);
	my $of_another = take("of another holder, $case", $hour, holder => "another, $case");
	my $long_in_session = take_session($holder, "long in a session, $case", $hour);
	my $endless = take_session($holder, "endless, $case");
	my $released = take("released, $case", $hour);
	$old_transaction->do('BEGIN');
	value($old_transaction, 'SELECT now()');

	# Absolute timers are not in libfaketime's reach, as they would have to be
	# where the monotonic clock is not the kernel's.
	if ($speed == 1)
	{
		$sitter = connect_to($node);
		$sitter->do('BEGIN');
		$sitting = take("sat on, $case", $short, session => $sitter);
	}
	extend($renewed);
	my ($waiter) = start_waiting($waited_for->{election}, '10 s');
	my ($loser, $loser_sent) = start_waiting($long->{election}, "$short s");

	$fault->();

	my $later = take("acquired later, $case", $short);
	extend($renewed_later);
	holds_on($long, "$case: a long lease");
	holds_on($long_in_session, "$case: a long one of a session", $holder);
	holds_on($endless, "$case: a session's without a TTL", $holder);
	$of_another->{sent} = now();
	is_deeply(column($dbh, q{SELECT election FROM leader_renew_all(?)}, "another, $case"),
		[ $of_another->{election} ], "P4: $case: leader_renew_all finds a long lease");
	$of_another->{answered} = now();
	left_is_right($of_another, "$case: what is left of it",
		'leader_status WHERE election = ?');
	ok(value($dbh, 'SELECT leader_release(?, ?)', @$released{qw(election epoch)}),
		"$case: a release ends its term");
	my $next = take($released->{election}, $hour);

	# Everything that ends by itself; none may do so early.
	$awaited->('a lease', $alone);
	$awaited->('a lease of a session', $in_session);
	$awaited->('a lease that was renewed before', $renewed);
	$awaited->('a lease that was renewed after', $renewed_later);
	$awaited->('a lease that was acquired after', $later);
	push @ends,
	  {
		name => 'a lease that was waited for', lease => $waited_for,
		ended => sub { query_done($waiter) },
	  },
	  {
		name => 'a wait for a lease that goes on', lease => { sent => $loser_sent },
		ended => sub { query_done($loser) },
	  };
	push @ends,
	  {
		name => 'a transaction that sat on its term', lease => $sitting,
		ended => sub {
			!value($dbh, 'SELECT count(*) FROM pg_stat_activity WHERE pid = ?',
				backend_pid($sitter));
		},
	  }
	  if $sitter;
	my @open = @ends;
	eval {
		poll_until(
			sub {
				foreach my $end (@open)
				{
					$end->{lasted} = elapsed($end->{lease}->{sent})
					  if $end->{ended}->();
				}
				@open = grep { !defined $_->{lasted} } @open;
				!@open;
			},
			'everything to end that must');
	};
	foreach my $end (@ends)
	{
		my $name = "P4: $case: $end->{name}";

		cmp_ok($end->{lasted} // 0, '>=',
			$short / $speed - ($speed == 1 ? 0 : $slack),
			"$name: not before its time");
		cmp_ok($end->{lasted} // $hour, '<', $much_later, "$name: but then");
	}
	# Nothing that follows could be believed.
	die "$case: " . join(', ', map { $_->{name} } @open) . ': no end' if @open;

	my ($state, $rows) = finish_query($waiter);
	ok($rows->[0]->{is_leader}, "$case: who waited for the lease has it");
	cmp_ok($rows->[0]->{epoch} // 0, '>', $waited_for->{epoch},
		"P1: $case: under a higher epoch");
	($state, $rows) = finish_query($loser);
	is($state, '00000', "$case: who waited for too short is told");
	ok(!$rows->[0]->{is_leader}, "$case: that he is not the leader");
	is(sqlstate($sitter, 'SELECT 1'), '57P01', "$case: who sat there was ended")
	  if $sitter;

	ended_as($alone, 'expired', "$case: a term that was taken over");
	ended_as($in_session, 'expired', "$case: a session's term");
	ended_as($unwanted, 'expired', "$case: a term that nobody took over");
	ended_as($released, 'released', "$case: a term that was released");
	is( value($dbh, 'SELECT state FROM leader_status WHERE election = ?',
			$unwanted->{election}),
		'expired', "$case: an election that nobody wants is shown as expired");
	holds_on($next, "$case: a lease acquired right after the release");
	holds_on($long, "$case: a long lease in the end");

	# Where now() is as old as the fault, and the time zone is another one.
	$old_transaction->do(q{SET LOCAL timezone = 'Pacific/Kiritimati'});
	my $in_old = take("in an old transaction, $case", $hour,
		session => $old_transaction);
	$old_transaction->do('COMMIT');
	left_is_right($in_old, "$case: what is left of a lease from an old transaction",
		'leader_status WHERE election = ?');
	epochs_grow($case);
	$_->disconnect for $holder, $waiter, $loser, $old_transaction;
	return;
}

#
# The wall clock is set.
#

$node->stop;
set_clock('+0');
start_server();
clock_is_ahead(0, 'at the start');

go_through(
	'an hour forward',
	sub {
		set_clock("+$hour");
		clock_is_ahead($hour, 'an hour forward');
	});
go_through(
	'an hour back',
	sub {
		set_clock('+0');
		clock_is_ahead(0, 'an hour back');
	});

#
# While the server is down: then the counter alone tells what was granted.
#

my $setting = 0;
foreach my $mode ('fast', 'immediate')
{
	my $case = "an hour back over a restart ($mode)";
	my $lease = take("short, $case", $short);
	my $long = take("long, $case", $hour);

	my $granted_at = server_time($dbh);

	$setting -= $hour;
	$node->stop($mode);
	set_clock($setting);
	start_server();
	clock_is_ahead($setting, $case);
	cmp_ok(server_time($dbh), '<', $granted_at, "$case: it is before the last grant");

	# The first look
	my $sent = now();
	my $bid = acquire($rival, $lease->{election}, 'rival', '1 hour');
	ok(!is_leader($bid), "P5: $case: a held lease is held");
	ok(extend($long), "P5: $case: a holder goes on");
	left_is_right($long, "$case: with what is left", 'leader_status WHERE election = ?');
	take("new, $case", $hour);
	poll_until(
		sub {
			my $won = acquire($rival, $lease->{election}, 'rival', '1 hour');
			push @epochs, $won->{epoch} if is_leader($won);
			is_leader($won);
		},
		'the end of a lease');
	cmp_ok(elapsed($sent), '>=', $short, "P5: $case: for one TTL");
	epochs_grow($case);
}

# While the extension is away: then the server's memory alone does.
{
	my $case = 'an hour back, DROP and CREATE EXTENSION';
	my $granted_at = server_time($dbh);

	$setting -= $hour;
	set_clock($setting);
	clock_is_ahead($setting, $case);
	$dbh->do('DROP EXTENSION leader_election');
	$dbh->do('CREATE EXTENSION leader_election');
	cmp_ok(server_time($dbh), '<', $granted_at, "$case: it is before the last grant");
	take('after it was created again', $hour);
	epochs_grow($case);
}

#
# The wall clock runs too fast.
#

# How much the server's clock went on from one of these observations to the
# next, and between which bounds the test's own did.
sub observe
{
	my $before = now();
	return { before => $before, server => server_time($dbh), after => now() };
}

sub ran_at_rate
{
	my ($from, $to, $case) = @_;
	my $went_on = $to->{server} - $from->{server};

	ok( $went_on >= $rate * ($to->{before} - $from->{after}) - $slack
		  && $went_on <= $rate * ($to->{after} - $from->{before}) + $slack,
		"$case: the server's wall clock ran at the rate of $rate")
	  or diag(sprintf 'by %f in %f', $went_on, $to->{before} - $from->{after});
	return;
}

{
	my $case = 'a fast wall clock';
	my $from;

	go_through(
		$case,
		sub {
			set_clock("+0 x$rate");
			$from = observe();
		});
	ran_at_rate($from, observe(), $case);
}

# The same, and the monotonic clock with it: then that is what a second is, and
# the lease is shorter by the rate alone.
{
	my $case = 'a fast monotonic clock';

	$node->stop;
	start_server(fake_monotonic => 1);
	$speed = $rate;
	my $from = observe();
	go_through($case, sub { });
	ran_at_rate($from, observe(), $case);
}

done_testing();
