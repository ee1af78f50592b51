# Heartbeat: what the tests of leaderctl's safety share.
#
# The judge is the life of the command: it and all that it has started write the
# time every few milliseconds (see heartbeat.pl), while a contender outside asks
# for the lease again and again.  The last sign of life must lie before the time
# at which the contender was told that it leads: one clock, and no matter how
# slow the machine is.
package Heartbeat;

use strict;
use warnings FATAL => 'all';

use Cwd ();
use Exporter 'import';
use File::Basename qw(dirname);
use IO::Select;
use IO::Socket::UNIX;
use LeaderElection;
use Leaderctl;
use List::Util qw(max);
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep usleep);

our @EXPORT = qw(
  start_beating starts events last_beat command_processes await_gone eventually leads_again
  contend give_way dead_before_takeover told_before_the_end
  start_relay relayed own end_beating);

my $script = Cwd::abs_path(dirname(__FILE__)) . '/heartbeat.pl';
my $directory = PostgreSQL::Test::Utils::tempdir();
my @relays;

# A condition that is a check, so that a test which waits in vain has failed.  If
# it is about a leaderctl then its end ends the waiting.
sub eventually
{
	my ($condition, $name, $case) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $true = 0;

	eval {
		poll_until(
			sub {
				my $ended = $case && ended($case->{run});
				$true = $condition->();
				$true || $ended;
			},
			$name);
	};
	return ok($true, $name) || diag($case ? said($case->{run}) : 'waited in vain');
}

# It leads after somebody else did.
sub leads_again
{
	my ($case, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return eventually(sub { (starts($case))[-1]->{epoch} > $case->{won}->{epoch} },
		"$name: leaderctl leads again, with a new epoch", $case);
}

# start_beating($node, $election, \@words, \@options, relay => $relay): a
# leaderctl whose command beats, once it does.
sub start_beating
{
	my ($node, $election, $words, $options, %params) = @_;
	my $case = {
		election => $election,
		log => "$directory/" . $election =~ s/\W/_/gr . '.' . scalar(@{[ glob "$directory/*" ]}),
		relay => $params{relay},
	};

	$case->{run} = start_leaderctl(
		$node,
		[ 'run', '-e', $election, @$options, '--', $^X, $script, $case->{log}, $$, @$words ],
		env => $params{relay} ? { PGHOST => $params{relay}->{host} } : {});
	return $case;
}

sub lines
{
	my ($file) = @_;
	open(my $lines, '<', $file) or return;
	return map {
		my ($what, $pid, $time, $epoch, $holder) = split ' ', $_, 5;
		{ what => $what, pid => $pid, time => $time, epoch => $epoch, holder => $holder };
	} grep { /\n$/ } <$lines>;
}

# What has happened to the command: all, or one kind of it.
sub events
{
	my ($case, $what) = @_;
	return grep { !defined $what || $_->{what} eq $what } lines($case->{log});
}

sub starts { return events($_[0], 'start'); }

# The last sign of life of the processes that ran under an epoch.
sub last_beat
{
	my ($case, $epoch) = @_;
	return max(map { $_->{time} } grep { $_->{epoch} == $epoch } lines("$case->{log}.beats"));
}

# leaderctl's own processes: with "main" and "guard".
sub own { return own_processes($_[0]->{run}); }

# The command, and what it has started.
sub command_processes
{
	my ($case) = @_;
	my %own = map { $_ => 1 } values %{ own($case) };
	return grep { !$own{$_} } marked($case->{run});
}

sub await_gone
{
	my ($case, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return eventually(sub { !command_processes($case) }, $name);
}

# Asks for each lease that has not been got yet.  True when there is none left.
sub contend_once
{
	my ($dbh, @cases) = @_;

	foreach my $case (grep { !$_->{won} } @cases)
	{
		my $answer = told(\&acquire, $dbh, $case->{election}, 'contender', '1 hour');
		$case->{won} = $answer if is_leader($answer);
	}
	return !grep { !$_->{won} } @cases;
}

# Asks until all are got, and lets something else be done meanwhile, which
# answers whether it is done.
sub contend
{
	my ($dbh, $cases, $meanwhile) = @_;
	my $until = now() + $PostgreSQL::Test::Utils::timeout_default;

	while (1)
	{
		my $done = contend_once($dbh, @$cases);

		$done = $meanwhile->() && $done if $meanwhile;
		return if $done;
		if (now() > $until)
		{
			fail('each lease ends, and this: '
				. join(', ', 'meanwhile', map { $_->{election} } grep { !$_->{won} } @$cases));
			die 'there is no point in going on';
		}
		usleep(3_000);
	}
}

# The contender has led for long enough.
sub give_way
{
	my ($dbh, $case) = @_;
	return value($dbh, 'SELECT leader_release(?, ?)', $case->{election}, $case->{won}->{epoch});
}

# P4, seen from the command's side, for the term that was the last one then.
# Who lives too long is given time to show it.
sub dead_before_takeover
{
	my ($case, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $until = now() + 2;
	my $epoch = (grep { $_->{epoch} < $case->{won}->{epoch} } starts($case))[-1]->{epoch};

	usleep(10_000) while command_processes($case) && now() < $until;
	my $last = last_beat($case, $epoch);

	return ok(defined $last && $last < $case->{won}->{answered},
		"$name: P4: no process of the command is alive when somebody else leads")
	  || diag(defined $last
		? sprintf('alive for %.3f s too long', $last - $case->{won}->{answered})
		: 'no sign of life');
}

# Every process of the group was told to end, and before it was killed.
sub told_before_the_end
{
	my ($case, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $epoch = (starts($case))[-1]->{epoch};
	my %told = map { $_->{pid} => 1 } grep { $_->{epoch} == $epoch } events($case, 'term');
	my %alive = map { $_->{pid} => 1 } grep { $_->{epoch} == $epoch } lines("$case->{log}.beats");

	return is_deeply([ sort keys %told ], [ sort keys %alive ],
		"$name: all processes of the command are told to end before they are killed");
}

# Ends it as an impatient person would, as most commands here do not obey: what
# comes at once counts as one, so told again and again.
sub end_beating
{
	my ($case, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $told_at = 0;

	poll_until(
		sub {
			return 1 if ended($case->{run});
			return 0 if elapsed($told_at) < 0.5;
			kill 'TERM', $case->{run}->{pid};
			$told_at = now();
			return 0;
		},
		'leaderctl to end');
	return is_deeply([ marked($case->{run}) ], [], "$name: told to end, it leaves nothing behind");
}

#
# A network that breaks without a word: a relay that is frozen, or falls silent
#

# start_relay($node, hold => SECONDS): passes everything on, and notes what is
# asked.  With "hold" the answer to a bid comes late by that much, and nothing
# at all after the first renewal.
sub start_relay
{
	my ($node, %params) = @_;
	my $host = PostgreSQL::Test::Utils::tempdir_short();
	my $socket = '/.s.PGSQL.' . $node->port;
	my $listener = IO::Socket::UNIX->new(Local => $host . $socket, Listen => 100)
	  or die "$host$socket: $!";
	my $relay = { host => $host, log => "$host/log" };
	my $test = $$;

	$relay->{pid} = fork() // die "fork: $!";
	if ($relay->{pid} == 0)
	{
		eval { pass_on($listener, $node->host . $socket, $relay->{log}, $test, $params{hold}); };
		POSIX::_exit(0);
	}
	close $listener;
	push @relays, $relay->{pid};
	return $relay;
}

# What was asked, and when the end of a term was notified: "what", "time", and
# "epoch" if one was named.
sub relayed
{
	my ($relay) = @_;
	open(my $lines, '<', $relay->{log}) or return;
	return map {
		my ($time, $what, $epoch) = split;
		{ time => $time, what => $what, epoch => $epoch };
	} <$lines>;
}

sub pass_on
{
	my ($listener, $server, $file, $test, $hold) = @_;
	my $select = IO::Select->new($listener);
	my %peer;
	my %client;
	my %held;

	open(my $log, '>>', $file) or die;
	while (getppid() == $test)
	{
		foreach my $from ($select->can_read(1))
		{
			if ($from == $listener)
			{
				my $client = $listener->accept or next;
				my $to = IO::Socket::UNIX->new(Peer => $server);

				# A server that is not there
				next if !$to;
				@peer{ $client, $to } = ($to, $client);
				$client{$client} = 1;
				$select->add($client, $to);
				next;
			}
			my $to = $peer{$from} or next;
			my $got = sysread $from, my $data, 65536;

			if (!$got)
			{
				$select->remove($from, $to);
				delete @peer{ $from, $to };
				close $_ for $from, $to;
				next;
			}
			if ($client{$from} && $data =~ /\.leader_(acquire|renew|release)/)
			{
				my $what = $1;

				syswrite $log, sprintf("%.6f %s %s\n", now(), $what, $data =~ /(\d{10,})/ ? $1 : 0);
				$held{$to} = $hold && $what eq 'acquire';
				if ($hold && $what eq 'renew')
				{
					sleep 1 while getppid() == $test;
					return;
				}
			}
			elsif ($held{$from})
			{
				sleep $hold;
				delete $held{$from};
			}
			elsif (!$client{$from} && $data =~ /leader_election\0\{.*"event": "end"/s)
			{
				syswrite $log, sprintf("%.6f end 0\n", now());
			}

			# Who does not read any more will be seen to be gone.
			local $SIG{PIPE} = 'IGNORE';
			syswrite $to, $data;
		}
	}
	return;
}

END
{
	local $?;
	kill 'KILL', @relays if @relays;
	waitpid $_, 0 for @relays;
}

1;
