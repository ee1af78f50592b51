#!/usr/bin/perl
#
# How long it takes until the next leader is told that it leads, after the old one
# has released or its client was killed, beside a bare advisory lock and the ways
# of others.
#
#	hand-over.pl ROUNDS
#
# The leader is a process of its own; the candidate waits inside its call (River's
# listens), and is seen to wait before the leader goes.  The time begins when the
# leader sends the release, or just before it is killed, and ends when the
# candidate has the answer.  A lease whose holder is killed lasts as long as it was
# last told: there the time begins at the earliest moment at which it can have run
# out, before the last renewal was sent plus the TTL.  One clock tells all of it,
# that of this machine.
#
# Prints a line for each: the name, and all times in milliseconds.  The environment
# leads to the database.

use strict;
use warnings FATAL => 'all';

use DBI;
use DBD::Pg qw(:async);
use IO::Handle;
use IO::Select;
use Time::HiRes qw(clock_gettime sleep CLOCK_MONOTONIC);

use constant {
	PATIENCE => 30,
	TTL      => 0.5,
};

my $rounds = shift;

# What the leader does to lead, to stay and to go, and what the candidate sends.
my $session = q{SELECT epoch FROM leader_acquire_session('hand-over', wait => '10s')};
my $lease = q{SELECT epoch FROM leader_acquire('hand-over', ?, '1 min', '10s')};
my $release = q{SELECT leader_release('hand-over', ?)};
my $advisory = 'SELECT pg_advisory_lock(1)';
my $unlock = 'SELECT pg_advisory_unlock(1)';
my %contenders = (
	'advisory lock, unlock'  => { lead => $advisory, go => $unlock },
	'advisory lock, kill -9' => { lead => $advisory, go => $unlock, end => 'kill' },
	'session, release' => { lead => $session, go => $release, token => 1 },
	'session, kill -9' => { lead => $session, go => $release, token => 1, end => 'kill' },
	'lease, release'   => { lead => $lease, go => $release, token => 1, named => 1 },
	'lease, ran out'   => {
		lead => qq{SELECT epoch FROM leader_acquire('hand-over', ?, '${\TTL} s', '10s')},
		stay => q{SELECT leader_renew('hand-over', ?)},
		go => $release, token => 1, named => 1, end => 'run out' },
	'pg_lease, release' => {
		lead => q{SELECT epoch FROM lease_acquire('hand-over', ?, '1 min', '10 s')},
		go => q{SELECT lease_release('hand-over', owner, ?) FROM lease WHERE key = 'hand-over'},
		token => 1, named => 1 },
	'pg_lease, ran out' => {
		lead => qq{SELECT epoch FROM lease_acquire('hand-over', ?, '${\TTL} s', '10 s')},
		stay => qq{SELECT lease_renew('hand-over', owner, ?, '${\TTL} s') FROM lease WHERE key = 'hand-over'},
		go => q{SELECT lease_release('hand-over', owner, ?) FROM lease WHERE key = 'hand-over'},
		token => 1, named => 1, end => 'run out' },
	'River, resignation' => {
		# In one round trip; the second statement tells whether it was won.
		lead => q{BEGIN; DELETE FROM river_leader WHERE name = 'hand-over' AND expires_at < now();
			INSERT INTO river_leader (name, leader_id, elected_at, expires_at)
			VALUES ('hand-over', pg_backend_pid(), now(), now() + interval '1 min') ON CONFLICT (name) DO NOTHING;
			COMMIT},
		won => q{SELECT 1 FROM river_leader WHERE name = 'hand-over' AND leader_id = pg_backend_pid()::text},
		go => q{WITH resigned AS (DELETE FROM river_leader WHERE name = 'hand-over' RETURNING name)
			SELECT pg_notify('river_leadership', 'resigned') FROM resigned},
		listens => 1 });
my @names = ('advisory lock, unlock', 'session, release', 'lease, release', 'pg_lease, release',
	'River, resignation', 'advisory lock, kill -9', 'session, kill -9', 'lease, ran out', 'pg_lease, ran out');

my ($candidate, $observer) = (connect_to_server(), connect_to_server());
my $candidate_pid = $candidate->{pg_pid};
my (%ms, $leader);

# The leader does not outlive us, whatever happens.
$SIG{$_} = sub { die "interrupted\n" } for qw(INT TERM HUP);
END { kill KILL => $leader if $leader }

$candidate->do('LISTEN river_leadership');
for my $round (1 .. $rounds)
{
	for my $name (@names)
	{
		# Leases that run out take their time.
		next if ($contenders{$name}{end} // '') eq 'run out' && $round % 5 != 1;
		push @{ $ms{$name} }, 1000 * play($contenders{$name});
	}
}
print join("\t", $_, map { sprintf '%.3f', $_ } @{ $ms{$_} }), "\n" for @names;

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

	return $dbh->do($contender->{go}, undef, $contender->{token} ? ($epoch) : ());
}

# The epoch, or whatever the contender has for it
sub lead
{
	my ($dbh, $contender, $name) = @_;

	if ($contender->{listens})
	{
		$dbh->do($contender->{lead});
		return scalar $dbh->selectrow_array($contender->{won});
	}
	return scalar $dbh->selectrow_array($contender->{lead}, undef, arguments($contender, $name));
}

# Leads, says so, and goes when told; the time it sends the release, or its last
# renewal, is its answer.
sub be_leader
{
	my ($contender, $from, $to) = @_;
	my $dbh = connect_to_server();
	my $epoch = lead($dbh, $contender, 'old');
	my $told = IO::Select->new($from);
	my $stay = sub { $dbh->do($contender->{stay}, undef, $epoch) if $contender->{stay} };

	defined $epoch or die "the leader was refused\n";
	print $to "leads\n";
	$stay->() until $told->can_read(TTL / 10);
	<$from>;
	print $to monotonic(), "\n";
	$contender->{stay} ? $stay->() : go($dbh, $contender, $epoch);
	print $to "done\n";
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
			q{SELECT wait_event_type IN ('Extension', 'Lock', 'Timeout') FROM pg_stat_activity WHERE pid = ?},
			undef, $candidate_pid))
	{
		die "the candidate does not wait\n" if monotonic() > $until;
		sleep 0.001;
	}
}

# Sends the candidate's call, which waits; one who listens has nothing to send.
sub begin_bid
{
	my $contender = shift;

	return if $contender->{listens};
	my $bid = $candidate->prepare($contender->{lead}, { pg_async => PG_ASYNC });
	$bid->execute(arguments($contender, 'new'));
	await_waiting();
	return $bid;
}

# The candidate's epoch
sub end_bid
{
	my ($contender, $bid) = @_;

	IO::Select->new($candidate->{pg_socket})->can_read(PATIENCE)
	  or die "the candidate has starved\n";
	if (!$bid)
	{
		$candidate->pg_notifies or die "the candidate was not notified\n";
		return lead($candidate, $contender);
	}
	$bid->pg_result;
	my ($epoch) = $bid->fetchrow_array;
	$bid->finish;
	return $epoch;
}

# Makes the leader go; the time from which is counted.
sub end_leader
{
	my ($contender, $to_leader, $from_leader) = @_;
	my $end = $contender->{end} // '';
	my $begin = monotonic();

	if ($end eq 'kill')
	{
		kill KILL => $leader;
		return $begin;
	}
	print $to_leader "go\n";
	$begin = <$from_leader> // die "the leader has failed\n";
	return $begin unless $end eq 'run out';
	<$from_leader> // die "the leader has failed\n";
	kill KILL => $leader;
	return $begin + TTL;
}

sub play
{
	my $contender = shift;
	my ($to_leader, $from_leader) = start_leader($contender);

	<$from_leader> // die "the leader has failed\n";
	my $bid = begin_bid($contender);
	my $begin = end_leader($contender, $to_leader, $from_leader);
	my $epoch = end_bid($contender, $bid);
	my $end = monotonic();
	defined $epoch or die "the candidate was refused\n";

	close $to_leader;
	waitpid $leader, 0;
	$leader = undef;
	go($candidate, $contender, $epoch);
	1 while $candidate->pg_notifies;
	return $end - $begin;
}
