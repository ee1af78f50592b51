# heartbeat.pl LOG TEST WORD...: what the tests of leaderctl's safety run as the
# command.  As long as it lives it writes the time every few milliseconds, as do
# the processes that it starts, so that a test can tell to when it has lived.
#
# Events go to LOG and signs of life to LOG.beats, one a line:
#	WHAT PID TIME EPOCH HOLDER
# The words:
#	polite		ends a little after it was told to
#	stubborn	does not care for TERM, but notes it
#	tree		has children that are stubborn, one of which was forked twice
#	runaway		one of them has left the process group, and the session
#
# "start" is written when all of them are there.  None outlives the test.
use strict;
use warnings FATAL => 'all';

use POSIX ();
use Time::HiRes qw(clock_gettime usleep CLOCK_MONOTONIC);

my ($log, $test, @words) = @ARGV;
my %is = map { $_ => 1 } @words;
my $told = 0;
my $interval = 4_000;
my $last_work = 50_000;

sub note
{
	my ($what, $file) = @_;
	syswrite $file,
	  sprintf("%s %d %.6f %s %s\n", $what, $$, clock_gettime(CLOCK_MONOTONIC),
		$ENV{LEADER_EPOCH}, $ENV{LEADER_HOLDER});
	return;
}

open(my $events, '>>', $log) or die "$log: $!";
open(my $beats, '>>', "$log.beats") or die "$log.beats: $!";
$SIG{TERM} = sub { note('term', $events); $told = 1; };
$SIG{HUP} = 'IGNORE';

sub live
{
	my ($polite) = @_;
	while (kill 0, $test)
	{
		note('beat', $beats);
		last if $polite && $told;
		usleep($interval);
	}
	return if !$told;
	usleep($last_work);
	note('done', $events);
	return;
}

pipe(my $from_children, my $to_parent) or die;

sub have_child
{
	my ($become) = @_;
	my $pid = fork() // die "fork: $!";
	return if $pid != 0;
	$become->();
	syswrite $to_parent, '.';
	close $_ for $from_children, $to_parent;
	live(0);
	POSIX::_exit(0);
}

my $children = 0;
if ($is{tree})
{
	have_child(sub { });
	have_child(sub { my $pid = fork() // die "fork: $!"; POSIX::_exit(0) if $pid != 0; });
	$children += 2;
}
if ($is{runaway})
{
	have_child(sub { POSIX::setsid(); });
	$children++;
}
sysread $from_children, my $sign, 1 for 1 .. $children;
close $_ for $from_children, $to_parent;
note('start', $events);
live($is{polite});
