# leaderctl and the protocol of sd_notify, on both sides.
#
# To its command, with --watchdog: who does not say WATCHDOG=1 often enough is
# ended and the lease is given back, though leaderctl itself would have gone on
# renewing it for ever; the next command is another candidate's, if there is one.
# To its own supervisor: ready as a candidate (whose readiness must not wait for
# leadership), what it is doing, that it lives, that it stops.  Neither side sees
# the other's socket.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use IO::Socket::UNIX ();
use LeaderElection;
use Leaderctl;
use List::Util qw(min);
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
my $dbh = connect_to($node);
my $directory = PostgreSQL::Test::Utils::tempdir_short();
my $file = "$directory/command.pl";

# Says WORDS every 50 ms until there is a file $SILENCE, and then only lives on.
# It writes what it does, with the time before it did it.
append_to_file($file, <<'EOC');
use IO::Socket::UNIX;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);
$| = 1;
sub note_down { print "@_ $ENV{LEADER_EPOCH} " . clock_gettime(CLOCK_MONOTONIC) . "\n"; }
$SIG{TERM} = sub { note_down('end'); exit 0; };
print "environment ", join(' ', map { "$_=" . ($ENV{$_} // 'none') } qw(NOTIFY_SOCKET WATCHDOG_USEC WATCHDOG_PID)), "\n";
note_down('begin');
my $address = $ENV{NOTIFY_SOCKET} // die;
$address =~ s/^@/\0/;
my $socket = IO::Socket::UNIX->new(Type => SOCK_DGRAM, Peer => $address) or die "socket: $!";
while (1)
{
	if (!-e $ENV{SILENCE})
	{
		note_down('alive');
		foreach my $word (@ARGV) { (my $words = $word) =~ s/\\n/\n/g; $socket->send($words); }
	}
	select undef, undef, undef, 0.05;
}
EOC

# The command is a descendant of the one that is started, as in a script.
my $silences = 0;

sub watched
{
	my ($election, $options, @words) = @_;
	my $silence = "$directory/silence" . ++$silences;
	my $run = start_leaderctl($node,
		[ 'run', '-e', $election, @$options, '--', 'sh', '-c', 'exec 3>&1; "$0" "$@" & trap "kill $!" TERM; wait; wait',
			$^X, $file, @words ],
		env => { SILENCE => $silence, NOTIFY_SOCKET => undef, WATCHDOG_USEC => undef });

	$run->{silence} = $silence;
	return $run;
}

sub fall_silent { append_to_file($_[0]->{silence}, ''); return; }

# The times at which its commands have noted something.
sub noted
{
	my ($run, $what) = @_;
	return my @times = printed($run) =~ /^$what \d+ ([\d.]+)$/mg;
}

sub await_noted
{
	my ($run, $what, $n) = @_;
	poll_until(sub { noted($run, $what) >= $n },
		"$what $n of a command; leaderctl has said:\n" . said($run) . printed($run));
	return (noted($run, $what))[ $n - 1 ];
}

sub epochs { return my @epochs = printed($_[0]) =~ /^begin (\d+)/mg; }

sub stop_run
{
	my ($run) = @_;
	kill 'TERM', $run->{pid} if !ended($run);
	return await_end($run);
}

sub status { return row($dbh, 'SELECT * FROM leader_status WHERE election = ?', $_[0]); }

sub end_reason
{
	my ($election, $epoch) = @_;
	return value($dbh, 'SELECT end_reason FROM leader_term WHERE election = ? AND epoch = ?', $election, $epoch);
}

#
# The command's side
#

# Who goes on speaking is let alone for longer than its time; looked at below.
my $lively = watched('lively', [ '--ttl', '10min', '--watchdog', '2s' ], 'STATUS=busy\nWATCHDOG=1\nX=y');
my $lively_since = await_noted($lively, 'alive', 1);

# The others run meanwhile.
my $begun = now();
my $never = watched('never', [ '--ttl', '10min', '--watchdog', '700ms', '--on-loss', 'exit' ]);
my $wrong = watched('wrong', [ '--ttl', '10min', '--watchdog', '700ms', '--on-loss', 'exit' ],
	'WATCHDOG=10', 'XWATCHDOG=1', 'STATUS=WATCHDOG=1', 'WATCHDOG=1 ', 'WATCHDOG=trigger', '');
my $alone = watched('alone', [ '--ttl', '6s', '--watchdog', '700ms' ]);

foreach my $case ([ $never, 'silent from the start', 'never' ], [ $wrong, 'other words', 'wrong' ])
{
	my ($run, $name, $election) = @$case;

	poll_until(sub { ended($run) || ((noted($run, 'alive'))[-1] // 0) > $begun + 10 }, "the end of \"$name\"");
	is($run->{code} // 'none', 123, "$name: exit code 123 with --on-loss exit");
	is(scalar noted($run, 'begin'), 1, "$name: the command has run");
	my ($end) = noted($run, 'end');
	ok(defined $end, "$name: and has been told to end");
	cmp_ok(($end // 0) - $begun, '>=', 0.7, "$name: but not before its time");
	like(said($run), qr/warning: [^\n]*has not said that it is alive for 700 ms/, "$name: which is said");
	is(end_reason($election, (epochs($run))[0]), 'released', "$name: the lease was given back");
	is_deeply([ marked($run) ], [], "$name: nothing is left");
}

# It stands again, after a while that it leaves to others.
await_noted($alone, 'begin', 2);
my ($first_end) = noted($alone, 'end');
cmp_ok((noted($alone, 'begin'))[1] - $first_end, '>=', 1.9,
	'where nobody else stands, it leads again, but not before a third of the TTL');
cmp_ok((epochs($alone))[1], '>', (epochs($alone))[0], 'P1: with a higher epoch');
stop_run($alone);

# One that falls silent after a while, with another one that waits.
my $failing = watched('handed over', [ '--ttl', '10min', '--watchdog', '1s' ], 'WATCHDOG=1');
await_noted($failing, 'alive', 5);
my $waiting = watched('handed over', [ '--ttl', '10min', '--watchdog', '1min' ], 'WATCHDOG=1');
await_said($waiting, qr/candidate; the leader is/);
fall_silent($failing);
my $next = await_noted($waiting, 'begin', 1);
my $end = (noted($failing, 'end'))[0];
my $last = (noted($failing, 'alive'))[-1];
cmp_ok($end - $last, '>=', 1, 'it falls silent: it is ended, but not before its time');
cmp_ok($next, '>', $end, 'another candidate leads, after that');
is(end_reason('handed over', (epochs($failing))[0]), 'released', 'as the lease was given back');
is(scalar noted($failing, 'begin'), 1, 'it has not begun again itself');
is(stop_run($failing), 143, 'but goes on standing until it is told to end');
is(status('handed over')->{epoch}, (epochs($waiting))[0], 'while the other one leads');
stop_run($waiting);

#
# The supervisor's side
#

# A socket, and what was heard there: [words, time]
sub supervise
{
	my ($address) = @_;
	(my $local = $address) =~ s/^@/\0/;
	my $socket = IO::Socket::UNIX->new(
		Type => IO::Socket::UNIX::SOCK_DGRAM(), Local => $local, Blocking => 0) or die "socket: $!";
	return { address => $address, socket => $socket, heard => [] };
}

sub heard
{
	my ($supervisor) = @_;
	my $words;

	push @{ $supervisor->{heard} }, [ $words, now() ]
	  while defined $supervisor->{socket}->recv($words, 4096) && length $words;
	return @{ $supervisor->{heard} };
}

sub await_heard
{
	my ($supervisor, $pattern, $n) = @_;
	my @matching;

	my $heard = eval {
		poll_until(
			sub {
				@matching = grep { $_->[0] =~ $pattern } heard($supervisor);
				@matching >= ($n // 1);
			},
			"the supervisor to hear $pattern");
	};
	return $heard ? @matching : die_of("the supervisor has not heard $pattern");
}

# What does not come is a failure, and the end.
sub die_of
{
	my ($what) = @_;
	fail($what);
	die $what;
}

sub supervised
{
	my ($supervisor, $arguments, %env) = @_;
	return start_leaderctl($node, [ 'run', @$arguments ], env => { NOTIFY_SOCKET => $supervisor->{address}, %env });
}

my @show = ('sh', '-c', 'echo "socket ${NOTIFY_SOCKET-none} ${WATCHDOG_USEC-none} ${WATCHDOG_PID-none}"; trap "exit 0" TERM; while :; do sleep 0.05; done');
my $epoch = acquire($dbh, 'supervised', 'somebody', '1 hour')->{epoch};
my $supervisor = supervise("$directory/supervisor");
my $run = supervised($supervisor, [ '-e', 'supervised', '--ttl', '10min', '--', @show ], WATCHDOG_USEC => 1_000_000);

await_heard($supervisor, qr/^READY=1$/);
is(printed($run), '', 'ready as a candidate, without being the leader');
await_heard($supervisor, qr/^STATUS=candidate for "supervised"; the leader is "somebody"$/);
pass('with a status that says so');

# Twice as often as it has to
my @alive = await_heard($supervisor, qr/^WATCHDOG=1$/, 4);
my @gaps = map { $alive[$_][1] - $alive[ $_ - 1 ][1] } 1 .. $#alive;
cmp_ok(min(@gaps), '<', 0.8, 'it says that it lives well within the time that it has');
cmp_ok(scalar @alive, '<=', 2 + ($alive[-1][1] - $alive[0][1]) / 0.5, 'and not all the time');

value($dbh, 'SELECT leader_release(?, ?)', 'supervised', $epoch);
await_printed($run, qr/^socket/);
$epoch = status('supervised')->{epoch};
await_heard($supervisor, qr/^STATUS=leader of "supervised" with epoch $epoch$/);
pass('a leader says so, too');
is(printed($run), "socket none none none\n", 'its command does not see the socket of the supervisor');
is(scalar(grep { $_->[0] eq 'READY=1' } heard($supervisor)), 1, 'ready was said once');
is(scalar(grep { $_->[0] =~ /^STOPPING/ } heard($supervisor)), 0, 'and nothing of an end yet');
my $before = grep { $_->[0] eq 'WATCHDOG=1' } heard($supervisor);
await_heard($supervisor, qr/^WATCHDOG=1$/, $before + 1);
pass('a leader says that it lives');
kill 'TERM', $run->{pid};
is(await_end($run), 0, 'it is told to end');
await_heard($supervisor, qr/^STOPPING=1$/);
pass('which the supervisor hears');

# With a watchdog of its own for the command; and who is not meant by WATCHDOG_PID.
# The address is in the abstract namespace.
$supervisor = supervise('@leader_election test ' . $$);
$run = supervised($supervisor, [ '-e', 'both', '--ttl', '10min', '--watchdog', '10min', '--', @show ],
	WATCHDOG_USEC => 1_000, WATCHDOG_PID => 1);
await_printed($run, qr/^socket/);
like(printed($run), qr/^socket \@\S+ 600000000 none$/, 'a watched command sees a socket of ours');
unlike(printed($run), qr/leader_election test/, "and not the supervisor's");
await_heard($supervisor, qr/^STATUS=leader/);
stop_run($run);
await_heard($supervisor, qr/^STOPPING=1$/);
is(scalar(grep { $_->[0] eq 'WATCHDOG=1' } heard($supervisor)), 0, "a time that another process has is not ours");

# Not ready without a server
$supervisor = supervise("$directory/third");
$run = supervised($supervisor, [ '-e', 'both', '--timeout', '300ms', '--', 'true' ], PGHOST => $directory);
is(await_end($run), 124, 'where nothing listens');
is(scalar(grep { $_->[0] =~ /^READY/ } heard($supervisor)), 0, 'nobody is ready');

# Nobody listens there, or nobody reads: that is no reason to wait.
$run = supervised({ address => "$directory/nobody" }, [ '-e', 'both', '--', 'sh', '-c', 'exit 5' ], WATCHDOG_USEC => 1_000);
is(await_end($run), 5, 'a supervisor that is not there');
$supervisor = supervise("$directory/fourth");
$run = supervised($supervisor, [ '-e', 'both', '--', 'sh', '-c', 'sleep 0.7; exit 6' ], WATCHDOG_USEC => 2_000);
is(await_end($run), 6, 'one that does not read');

# The first one has spoken all the time.
poll_until(sub { (noted($lively, 'alive'))[-1] > $lively_since + 5 }, 'some time to pass');
is(scalar noted($lively, 'begin'), 1, 'a command that goes on saying that it is alive goes on');
is(scalar noted($lively, 'end'), 0, 'and is not told to end');
like(printed($lively), qr/^environment NOTIFY_SOCKET=\@\S+ WATCHDOG_USEC=2000000 WATCHDOG_PID=none$/m,
	'it was told where to say so, and how often');
unlike(said($lively), qr/warning/, 'there is nothing to complain of');
is(status('lively')->{epoch}, (epochs($lively))[0], 'it still leads');
fall_silent($lively);
await_said($lively, qr/has not said that it is alive for 2000 ms/);
pass('until it falls silent');
stop_run($lively);
is(status('lively')->{state}, 'free', 'in the end nothing is held');

done_testing();
