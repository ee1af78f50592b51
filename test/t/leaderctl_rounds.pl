# Guards that leaderctl leaves nothing behind whenever a signal comes (R05): 500
# rounds of "leaderctl run" that are ended at random times, around connecting,
# winning and starting the command.  After each, at once: no process of it lives,
# the election is free, and the exit code says what has happened.  Then 50 rounds
# in which the main process is killed: its guard ends the command and gives the
# lease back long before that would have run out.
#
# ROUNDS_SEED in the environment repeats the choices of an earlier run.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use Leaderctl;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $seed = $ENV{ROUNDS_SEED} // int rand 2**31;
my $rounds = 500;
my $killed = 50;
my $lanes = 6;

# A lease that runs out by itself would come too late for everything here.
my $ttl = '10min';

my $node = new_node('main');
my $dbh = connect_to($node);
my $default_timeout = $PostgreSQL::Test::Utils::timeout_default;

diag("ROUNDS_SEED=$seed");
srand $seed;

#
# One round
#

# It says when it begins, and has a child in its group.
my @command = ('sh', '-c', 'echo started; sleep 600 & exec sleep 600');

# Chosen before the round, so that a seed repeats it.
sub choose
{
	my ($number, $span, $kill) = @_;
	my %round = (
		number => $number,
		election => ($kill ? 'killed' : 'told') . " $number",
		session => rand() < 0.3,
		held => rand() < 0.25,
		signal => rand() < 0.8 ? 'TERM' : 'INT',
		twice => rand() < 0.15 ? rand(0.02) : undef,
		release_at => rand($span),
		after_winning => rand() < 0.3,
		after_start => rand() < 0.1,
		delay => rand());

	@round{qw(signal twice)} = ('KILL', undef) if $kill;

	# Around the time at which it should win
	$round{signal_at} =
		$round{after_winning} || $round{after_start} ? undef
	  : $round{held} ? $round{release_at} + ($round{delay} - 0.4) * 0.05
	  : $round{delay} * $span;
	return \%round;
}

sub begin_round
{
	my ($round) = @_;

	$round->{epoch} = acquire($dbh, $round->{election}, 'holder', '1 hour')->{epoch} //
	  die "the election is held by " . holder_of($round->{election})
	  if $round->{held};
	$round->{began} = now();
	$round->{run} = start_leaderctl(
		$node,
		[
			'run', '-e', $round->{election}, '--ttl', $ttl,
			($round->{session} ? '--session' : ()), '--', @command
		]);
	return;
}

sub release
{
	my ($round) = @_;

	value($dbh, 'SELECT leader_release(?, ?)', $round->{election}, delete $round->{epoch})
	  if $round->{epoch};
	return;
}

# What is due; whatever is long overdue comes to its end in "poll_until".
sub advance_round
{
	my ($round) = @_;
	my $passed = elapsed($round->{began});
	my $run = $round->{run};

	# It is awaited only where it can happen.
	release($round)
	  if $passed >= $round->{release_at} && !($round->{sent} && !defined $round->{signal_at});
	if (!defined $round->{signal_at})
	{
		$round->{signal_at} = $passed + $round->{delay} * 0.005
		  if ($round->{after_start} ? printed($run) : said($run) =~ /leader with epoch/);
	}
	if (!$round->{sent} && defined $round->{signal_at} && $passed >= $round->{signal_at})
	{
		$round->{sent} = $passed;
		$round->{stage} = stage_of($run);
		kill $round->{signal}, $run->{pid};
	}
	if ($round->{sent} && defined $round->{twice} && $passed >= $round->{sent} + $round->{twice})
	{
		$round->{twice} = undef;
		$round->{again} = 1;
		kill $round->{signal}, $run->{pid};
	}
	return;
}

# How far it had come when the signal was sent, at least
sub stage_of
{
	my ($run) = @_;
	my $said = said($run);

	return 'child started' if printed($run) =~ /started/;
	return 'leading' if $said =~ /leader with epoch/;
	return 'candidate' if $said =~ /candidate;/;
	return 'not connected';
}

# A session that has ended holds nothing, though its term was not ended by name.
sub holder_of
{
	my ($election) = @_;
	my $row = row($dbh, 'SELECT state, leader, kind FROM leader_status WHERE election = ?', $election);

	return 'nobody'
	  if !$row || $row->{state} eq 'free' || $row->{state} eq 'expired' && $row->{kind} eq 'session';
	return join ' ', $row->{leader} // 'NULL', "($row->{kind}, $row->{state})";
}

# What is wrong after its end, at once
sub judge
{
	my ($round) = @_;
	my $run = $round->{run};
	my $number = $round->{signal} eq 'TERM' ? 15 : 2;
	my @codes = (128 + $number);
	my @wrong;

	# A second signal kills the command, and ends leaderctl while it releases:
	# the guard goes on with that, and the server notices the end of a session.
	if ($round->{again})
	{
		push @codes, 137;
		eval {
			poll_until(
				sub { !marked($run) && ($round->{epoch} || holder_of($round->{election}) eq 'nobody') },
				'the end of the guard');
		};
	}
	push @wrong, "exit code $run->{code}" if !grep { $run->{code} == $_ } @codes;

	my $holder = holder_of($round->{election});
	push @wrong, "the lease is held by $holder"
	  if $holder ne 'nobody' && !($round->{epoch} && $holder =~ /^holder/);
	my @left = map { describe($_) } marked($run);
	push @wrong, "there are processes: @left" if @left;
	return @wrong;
}

sub describe
{
	my ($pid) = @_;
	open(my $file, '<', "/proc/$pid/cmdline") or return "$pid (gone)";
	my $words = <$file> // '';
	$words =~ tr/\0/ /;
	return "$pid ($words)";
}

# Several at a time, each in a lane of its own; "$end" looks at one that has
# ended, and tells whether its lane is free again.
sub run_rounds
{
	my ($total, $width, $span, $kill, $end) = @_;
	my @lane;
	my $next = 0;
	my $until = now() + 2 * $default_timeout;

	while (1)
	{
		my $busy = 0;

		foreach my $i (0 .. $width - 1)
		{
			if (!$lane[$i] && $next < $total)
			{
				$lane[$i] = choose(++$next, $span, $kill);
				begin_round($lane[$i]);
			}
			my $round = $lane[$i] or next;
			$busy = 1;
			advance_round($round);
			$lane[$i] = undef if ended($round->{run}) && $end->($round);
		}
		last if !$busy;
		die 'rounds do not end: ' . join(' ', map { $_ ? "$_->{number} (" . said($_->{run}) . ')' : () } @lane)
		  if now() > $until;
		usleep(500);
	}
	return;
}

#
# How long it takes on this machine until the command has begun, that many at a
# time
#

my $span = 0.06;
{
	my @runs = map {
		start_leaderctl($node, [ 'run', '-e', "lane $_", '--', 'true' ])
	} 1 .. $lanes;
	my $began = now();

	await_end($_) for @runs;
	my $took = elapsed($began);
	is_deeply([ map { $_->{code} } @runs ], [ (0) x $lanes ], 'rounds without a signal');
	$span = 0.6 * $took if 0.6 * $took > $span;
	note(sprintf 'signals within %.0f ms', $span * 1000);
}

#
# Told to end
#

{
	my %stages;
	my ($judged, $again) = (0, 0);

	run_rounds(
		$rounds, $lanes, $span, 0,
		sub {
			my ($round) = @_;
			my @wrong = judge($round);

			$judged++;
			$again += $round->{again} // 0;
			# One that was not to be told before it led may have ended by itself.
			push @wrong, 'it ended by itself' if !$round->{sent};
			fail(join '; ', "R05: round $round->{number}", @wrong,
				map({ "$_ " . ($round->{$_} // '') } qw(stage session held signal again)),
				said($round->{run}))
			  if @wrong;
			release($round);
			$stages{ $round->{stage} }++ if $round->{stage};
			return 1;
		});
	note("$_: $stages{$_} rounds") for sort keys %stages;
	is($judged, $rounds, "R05: $rounds rounds with a signal leave nothing over");
	cmp_ok($stages{$_} // 0, '>', 0, "R05: some came when it was: $_")
	  for 'not connected', 'candidate', 'leading', 'child started';
	# But for sessions which a second signal kept from doing so
	cmp_ok(value($dbh, q{SELECT count(*) FROM leader_term
		WHERE leader <> 'holder' AND end_reason IS DISTINCT FROM 'released'}),
		'<=', $again, 'R14: the terms were given back');
	cmp_ok(value($dbh, q{SELECT count(*) FROM leader_term
		WHERE leader <> 'holder' AND end_reason = 'released'}),
		'>', 0, 'and there were some');
}

#
# Killed: the guard ends the command, and gives the lease back.
#

{
	my %stages;
	my $judged = 0;

	run_rounds(
		$killed, 2 * $lanes, 2 * $span, 1,
		sub {
			my ($round) = @_;
			my $run = $round->{run};

			if (!$round->{killed_at})
			{
				$round->{killed_at} = now();
				$stages{ $round->{stage} }++ if $round->{stage};
				fail("R05: round $round->{number}, killed: it ended by itself: " . said($run))
				  if !$round->{sent} || $run->{code} != 137;
				release($round);
			}
			my $passed = elapsed($round->{killed_at});
			my @left = grep { !is_guard($_) } marked($run);
			my $holder = holder_of($round->{election});

			if (@left && $passed > 10)
			{
				fail("R05: round $round->{number}, killed: processes are left: " . join ' ', map { describe($_) } @left);
			}
			elsif (($holder ne 'nobody' || marked($run)) && $passed > 60)
			{
				fail("R05: round $round->{number}, killed: the election is held by $holder: " . said($run));
			}
			else
			{
				return 0 if @left || $holder ne 'nobody' || marked($run);
			}
			$judged++;
			return 1;
		});
	note("$_: $stages{$_} rounds") for sort keys %stages;
	is($judged, $killed, "R05: $killed rounds in which the main process was killed leave nothing over");
	cmp_ok($stages{'child started'} // 0, '>', 0, 'R05: some had begun the command');
	cmp_ok($killed - ($stages{'child started'} // 0), '>', 0, 'R05: some had not');
}

# Killed together with its guard: nobody is left to give the lease back, but the
# command dies all the same.
{
	my @runs = map {
		start_leaderctl($node,
			[ 'run', '-e', "both $_", '--ttl', $ttl, '--', 'sh', '-c', 'echo started; exec sleep 600' ])
	} 1 .. 5;

	await_printed($_, qr/started/) for @runs;
	foreach my $run (@runs)
	{
		my $own = own_processes($run);

		is(scalar(marked($run)), 3, 'a leader is two processes and the command');
		kill 'KILL', @$own{qw(main guard)};
	}
	ok(eval { poll_until(sub { !grep { marked($_) } @runs }, 'the end of the commands') },
		'R05: the command dies, too');
	is(join(' ', map { await_end($_) } @runs), '137 137 137 137 137',
		'R05: both processes were killed');
}

sub is_guard
{
	my ($pid) = @_;
	open(my $file, '<', "/proc/$pid/comm") or return 0;
	return (<$file> // '') eq "leaderctl-guard\n";
}

done_testing();
