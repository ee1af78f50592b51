# Leaderctl: what the tests of leaderctl's processes share.
#
# leaderctl is started in a process group of its own, with its output in files,
# and with a mark in its environment, which all processes below it inherit: so
# whoever was left behind is found, whatever has become of its parents.
package Leaderctl;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use LeaderElection;
use POSIX ();
use PostgreSQL::Test::Utils;

our @EXPORT = qw(
  start_leaderctl leaderctl said printed ended await_end await_said await_printed
  marked own_processes state_of_process);

my $directory = PostgreSQL::Test::Utils::tempdir_short();
my $count = 0;
my %running;

# start_leaderctl($node, [ARGUMENT...], env => {...}, program => [...],
# before => sub {...}): with the node's connection in the environment, where a
# variable that is undef in "env" is unset; "before" runs in the new process.
sub start_leaderctl
{
	my ($node, $arguments, %params) = @_;
	my $file = "$directory/" . ++$count;
	my $run = { out => "$file.out", err => "$file.err", mark => "$$.$count." . int rand 1e9 };

	# A signal that comes early ends the new process, as it would end leaderctl,
	# rather than calling what handles it in a test.
	my $signals = POSIX::SigSet->new(POSIX::SIGTERM, POSIX::SIGINT, POSIX::SIGHUP);
	my $mask = POSIX::SigSet->new;
	POSIX::sigprocmask(POSIX::SIG_BLOCK, $signals, $mask);
	$run->{pid} = fork() // die "fork: $!";
	POSIX::sigprocmask(POSIX::SIG_SETMASK, $mask) if $run->{pid} != 0;
	if ($run->{pid} == 0)
	{
		$SIG{$_} = 'DEFAULT' for qw(TERM INT HUP PIPE);
		POSIX::sigprocmask(POSIX::SIG_SETMASK, $mask);

		my %env = (
			PGHOST => $node->host,
			PGPORT => $node->port,
			PGDATABASE => 'postgres',
			LEADERCTL_TEST_MARK => $run->{mark},
			%{ $params{env} // {} });

		setpgrp(0, 0);
		open(STDIN, '<', '/dev/null');
		open(STDOUT, '>>', $run->{out});
		open(STDERR, '>>', $run->{err});
		delete $ENV{PGAPPNAME};
		foreach my $name (keys %env)
		{
			if (defined $env{$name}) { $ENV{$name} = $env{$name}; }
			else { delete $ENV{$name}; }
		}
		$params{before}->() if $params{before};
		{
			no warnings 'exec';
			exec { ($params{program} // ['leaderctl'])->[0] } @{ $params{program} // ['leaderctl'] }, @$arguments;
		}
		POSIX::_exit(99);
	}
	$running{ $run->{pid} } = $run;
	return $run;
}

# Runs it to its end: the exit code, what it has printed, what it has said.
sub leaderctl
{
	my $run = start_leaderctl(@_);

	await_end($run);
	return ($run->{code}, printed($run), said($run));
}

sub printed { return -e $_[0]->{out} ? slurp_file($_[0]->{out}) : ''; }
sub said { return -e $_[0]->{err} ? slurp_file($_[0]->{err}) : ''; }

# True once it has ended; then "code" is its exit code as a shell shows it.
sub ended
{
	my ($run) = @_;
	return 1 if defined $run->{code};
	return 0 if waitpid($run->{pid}, POSIX::WNOHANG()) != $run->{pid};
	$run->{status} = $?;
	$run->{code} = $? & 127 ? 128 + ($? & 127) : $? >> 8;
	delete $running{ $run->{pid} };
	return 1;
}

sub await_end
{
	my ($run) = @_;
	poll_until(sub { ended($run) }, "leaderctl to end; it has said:\n" . said($run));
	return $run->{code};
}

# Waits until it has said, or its command has printed, what matches.
sub await_said
{
	my ($run, $pattern) = @_;
	return await_text($run, \&said, $pattern);
}

sub await_printed
{
	my ($run, $pattern) = @_;
	return await_text($run, \&printed, $pattern);
}

sub await_text
{
	my ($run, $text, $pattern) = @_;
	poll_until(sub { $text->($run) =~ $pattern || ended($run) }, "leaderctl to say $pattern");
	die "leaderctl has not said $pattern:\n" . said($run) . printed($run)
	  if $text->($run) !~ $pattern;
	return;
}

# The state of a process as one letter, its parent and its group; empty if there
# is none.
sub state_of_process
{
	my ($pid) = @_;
	open(my $file, '<', "/proc/$pid/stat") or return;
	return (<$file> // '') =~ /^.*\) (\S) (\d+) (\d+) /;
}

# The processes that live and have the mark: leaderctl's and its command's.
sub marked
{
	my ($run) = @_;

	# Numbers are given in order, so all of them come after the first, until the
	# numbers start from below again.
	my ($last) = slurp_file('/proc/loadavg') =~ /(\d+)$/;
	return processes_with("\Q$run->{mark}\E(?:\0|\$)", $last >= $run->{pid} ? $run->{pid} : 0);
}

sub processes_with
{
	my ($mark, $from) = @_;
	my @pids;

	opendir(my $proc, '/proc') or die "/proc: $!";
	foreach my $pid (grep { /^\d+$/ && $_ >= $from } readdir $proc)
	{
		open(my $file, '<', "/proc/$pid/environ") or next;
		local $/;
		my $environment = <$file> // '';
		push @pids, $pid
		  if $environment =~ /(?:^|\0)LEADERCTL_TEST_MARK=$mark/;
	}
	# Those that have ended meanwhile do not count.
	return grep { ((state_of_process($_))[0] // 'X') =~ /[^ZX]/ } @pids;
}

# Of them, leaderctl's own ones: the main process and its guard.
sub own_processes
{
	my ($run) = @_;
	my %own;

	foreach my $pid (marked($run))
	{
		open(my $file, '<', "/proc/$pid/comm") or next;
		my $name = <$file> // '';
		chomp $name;
		$own{main} = $pid if $pid == $run->{pid};
		$own{guard} = $pid if $name eq 'leaderctl-guard' && $pid != $run->{pid};
	}
	return \%own;
}

# A test leaves nothing behind, also when it breaks off or has found something
# that was left.
END
{
	local $?;
	my @pids = processes_with("$$\\.", 0);

	kill 'KILL', @pids if @pids;
	waitpid $_, 0 for keys %running;
}

1;
