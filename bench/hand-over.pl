#!/usr/bin/perl
#
# How long it takes until the next leader is told that it leads, after the old one
# has released or its client was killed, beside a bare advisory lock.
#
#	hand-over.pl ROUNDS
#
# The leader is a process of its own; the candidate waits inside its call, and is
# seen to wait before the leader goes.  The time begins when the leader sends the
# release, or just before it is killed, and ends when the candidate has the
# answer.  One clock tells both, that of this machine.
#
# Prints a table in Markdown.  The environment leads to the database.

use strict;
use warnings FATAL => 'all';

use DBI;
use DBD::Pg qw(:async);
use IO::Handle;
use IO::Select;
use Time::HiRes qw(clock_gettime sleep CLOCK_MONOTONIC);

use constant PATIENCE => 30;

my $rounds = shift;

# What the leader does to lead and to go, and what the candidate sends.
my $session = q{SELECT epoch FROM leader_acquire_session('hand-over', wait => '10s')};
my $lease = q{SELECT epoch FROM leader_acquire('hand-over', ?, '1 min', '10s')};
my %contenders = (
	'session, release' => { lead => $session, go => 'release' },
	'session, kill -9' => { lead => $session, go => 'kill' },
	'lease, release'   => { lead => $lease, go => 'release', named => 1 },
	'advisory lock, unlock'  => { lead => 'SELECT pg_advisory_lock(1)', go => 'unlock' },
	'advisory lock, kill -9' => { lead => 'SELECT pg_advisory_lock(1)', go => 'kill' });
my @names = ('advisory lock, unlock', 'session, release', 'lease, release',
	'advisory lock, kill -9', 'session, kill -9');

my ($candidate, $observer) = (connect_to_server(), connect_to_server());
my $candidate_pid = $candidate->{pg_pid};
my (%ms, $leader);

# The leader does not outlive us, whatever happens.
$SIG{$_} = sub { die "interrupted\n" } for qw(INT TERM HUP);
END { kill KILL => $leader if $leader }

for my $round (1 .. $rounds)
{
	push @{ $ms{$_} }, 1000 * play($contenders{$_}) for @names;
}
report();

sub monotonic { return clock_gettime(CLOCK_MONOTONIC) }

sub connect_to_server
{
	return DBI->connect('dbi:Pg:', undef, undef,
		{ RaiseError => 1, PrintError => 0, AutoCommit => 1 });
}

# A holder's name, where one is asked for
sub arguments { my ($contender, $name) = @_; return $contender->{named} ? ($name) : () }

sub go
{
	my ($dbh, $contender, $epoch) = @_;

	return $dbh->do('SELECT pg_advisory_unlock(1)') if $contender->{go} eq 'unlock';
	return $dbh->do(q{SELECT leader_release('hand-over', ?)}, undef, $epoch);
}

# Leads, says so, and goes when told; the time it sends the release is its answer.
sub be_leader
{
	my ($contender, $from, $to) = @_;
	my $dbh = connect_to_server();
	my ($epoch) = $dbh->selectrow_array($contender->{lead}, undef,
		arguments($contender, 'old'));

	print $to "leads\n";
	<$from>;
	print $to monotonic(), "\n";
	go($dbh, $contender, $epoch);
	<$from>;
	$dbh->disconnect;
}

sub start_leader
{
	my $contender = shift;

	pipe(my $from_us, my $to_leader) or die "pipe: $!\n";
	pipe(my $from_leader, my $to_us) or die "pipe: $!\n";
	$_->autoflush for $to_leader, $to_us;
	$leader = fork // die "fork: $!\n";
	if ($leader == 0)
	{
		$leader = undef;
		# The connections are our parent's.
		$_->{AutoInactiveDestroy} = 1 for $candidate, $observer;
		close $to_leader;
		close $from_leader;
		be_leader($contender, $from_us, $to_us);
		exit 0;
	}
	return ($to_leader, $from_leader);
}

# Until the candidate's call has begun to wait
sub await_waiting
{
	my $until = monotonic() + PATIENCE;

	until ($observer->selectrow_array(
			q{SELECT wait_event_type IN ('Extension', 'Lock') FROM pg_stat_activity WHERE pid = ?},
			undef, $candidate_pid))
	{
		die "the candidate does not wait\n" if monotonic() > $until;
		sleep 0.001;
	}
}

sub play
{
	my $contender = shift;
	my ($to_leader, $from_leader) = start_leader($contender);
	my ($begin, $end, $bid, $epoch);

	<$from_leader> // die "the leader has failed\n";
	$bid = $candidate->prepare($contender->{lead}, { pg_async => PG_ASYNC });
	$bid->execute(arguments($contender, 'new'));
	await_waiting();
	if ($contender->{go} eq 'kill')
	{
		$begin = monotonic();
		kill KILL => $leader;
	}
	else
	{
		print $to_leader "go\n";
		$begin = <$from_leader> // die "the leader has failed\n";
	}
	IO::Select->new($candidate->{pg_socket})->can_read(PATIENCE)
	  or die "the candidate has starved\n";
	$bid->pg_result;
	$end = monotonic();
	($epoch) = $bid->fetchrow_array;
	defined $epoch or die "the candidate was refused\n";
	$bid->finish;

	close $to_leader;
	waitpid $leader, 0;
	$leader = undef;
	go($candidate, $contender->{go} eq 'kill' && $contender->{lead} =~ /advisory/ ?
		  { go => 'unlock' } : $contender, $epoch);
	return $end - $begin;
}

sub quantile
{
	my ($share, @sorted) = @_;
	my $index = int($share * @sorted);
	return $sorted[$index > $#sorted ? $#sorted : $index];
}

sub report
{
	print "| $rounds rounds each | median, ms | p99 | most |\n|---|---|---|---|\n";
	for my $name (@names)
	{
		my @sorted = sort { $a <=> $b } @{ $ms{$name} };
		printf "| %s | %.2f | %.2f | %.2f |\n", $name, quantile(0.5, @sorted),
		  quantile(0.99, @sorted), $sorted[-1];
	}
}
