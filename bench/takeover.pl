#!/usr/bin/perl
#
# How long a takeover takes from a leader that is busy: 32 connections commit
# fenced writes without pause, and a candidate waits inside leader_acquire().
#
#	takeover.pl PGBENCH ROUNDS
#
# In every second round the leader lets its lease run out, in the others it
# releases.  The time begins at the earliest moment at which the lease can have
# ended: before its last renewal was sent plus the TTL, or when the release was
# sent.  It ends when the candidate has the answer.  One clock tells all of it,
# this process's.  For comparison, a session that has nothing to do with the
# election commits one row beside the same writers.  Not one of the writers may commit after the candidate was told,
# and each of them is refused in the end; otherwise this fails.
#
# Prints a table in Markdown.  The environment leads to the database.

use strict;
use warnings FATAL => 'all';

use DBI;
use DBD::Pg qw(:async);
use FindBin;
use POSIX qw(ceil);
use Time::HiRes qw(clock_gettime sleep CLOCK_MONOTONIC);

use constant {
	WRITERS  => 32,
	TTL      => 0.3,
	PATIENCE => 30,
};

my ($pgbench, $rounds) = @ARGV;
my ($leader, $candidate, $observer) = map { connect_to_server() } 1 .. 3;
my %ms;
my ($starved, $commits) = (0, 0);
my ($writers, $bid);

$SIG{$_} = sub { die "interrupted\n" }
  for qw(INT TERM HUP);

# Writers do not outlive us, whatever happens.
END { kill KILL => $writers if $writers }

prepare();
for (my $n = 0; $n < $rounds; )
{
	# A round does not count if the machine was too slow to keep the lease.
	$n++ if play($n % 2 ? 'release' : 'expiry');
}
report();

sub monotonic { return clock_gettime(CLOCK_MONOTONIC) }

sub connect_to_server
{
	return DBI->connect('dbi:Pg:', undef, undef,
		{ RaiseError => 1, PrintError => 0, AutoCommit => 1 });
}

sub value
{
	my ($dbh, @query) = @_;
	return scalar $dbh->selectrow_array(shift @query, undef, @query);
}

sub prepare
{
	$observer->do('SET client_min_messages = warning');
	$observer->do('CREATE TABLE written (writer int PRIMARY KEY, n bigint NOT NULL)
		WITH (fillfactor = 10)');
	$observer->do('INSERT INTO written SELECT w, 0 FROM generate_series(0, ? - 1) w',
		undef, WRITERS);
	$observer->do('CREATE TABLE beside AS SELECT 0 AS n');
	$observer->do(q{SELECT leader_protect('written', 'takeover')});
}

sub play
{
	my $how = shift;
	my $epoch = value($leader, 'SELECT epoch FROM leader_acquire(?, ?, ?, ?)',
		'takeover', 'leader', TTL . ' s', '10 s');
	die "the election did not become free\n" unless $epoch;

	my $written = value($observer, 'SELECT sum(n) FROM written');
	start_writers($epoch);
	my $lost = !lead_until_busy($epoch);
	commit_beside() unless $lost;
	wait_for_leadership() unless $lost;
	my $sent = monotonic();
	$lost ||= !renew($epoch);
	if ($lost)
	{
		stop_writers();
		my $next = $bid && result_of_bid();
		release($candidate, $next) if $next;
	}
	else
	{
		take_over($how, $epoch, $sent);
	}
	$commits += value($observer, 'SELECT sum(n) FROM written') - $written;
	return !$lost;
}

sub start_writers
{
	my $epoch = shift;
	$writers = fork // die "cannot fork: $!\n";
	return if $writers;
	open STDOUT, '>', '/dev/null';
	open STDERR, '>', '/dev/null';
	$ENV{PGOPTIONS} = "-c leader_election.fence=takeover=$epoch";
	{
		no warnings;
		exec $pgbench, '-n', '-M', 'prepared', '-c', WRITERS, '-j', 2,
		  '-T', PATIENCE, '-f', "$FindBin::Bin/sql/write.sql";
	}
	POSIX::_exit(127);
}

sub stop_writers
{
	kill KILL => $writers;
	waitpid $writers, 0;
	undef $writers;
}

sub renew
{
	my $epoch = shift;
	return value($leader, 'SELECT is_leader FROM leader_renew(?, ?)', 'takeover', $epoch);
}

# False if the lease was lost meanwhile.
sub lead_until_busy
{
	my $epoch = shift;
	my $until = monotonic() + PATIENCE;
	my $before = $observer->selectall_hashref('SELECT * FROM written', 'writer');
	my $busy = 0;

	while ($busy < WRITERS)
	{
		die "the writers did not come up\n" if monotonic() > $until;
		return 0 unless renew($epoch);
		my $now = $observer->selectall_hashref('SELECT * FROM written', 'writer');
		$busy = grep { $now->{$_}{n} > $before->{$_}{n} } keys %$now;
		sleep TTL / 20;
	}
	return 1;
}

# What a durable commit of anybody takes now
sub commit_beside
{
	for (1 .. 3)
	{
		my $from = monotonic();
		$observer->do('UPDATE beside SET n = n + 1');
		push @{ $ms{'plain commit'} }, (monotonic() - $from) * 1000;
	}
}

# The candidate begins to wait in the server.
sub wait_for_leadership
{
	$bid = $candidate->prepare(
		q{SELECT epoch FROM leader_acquire('takeover', 'candidate', '10 s', '10 s')},
		{ pg_async => PG_ASYNC });
	my $until = monotonic() + PATIENCE;
	my $event = '';

	$bid->execute;
	while ($event ne 'Extension')
	{
		die "the candidate does not wait\n" if monotonic() > $until;
		$event = value($observer, q{SELECT coalesce(wait_event_type, '')
			FROM pg_stat_activity WHERE pid = ?}, $candidate->{pg_pid});
	}
}

# The candidate's epoch, as soon as it is told; undef if it gave up.
sub result_of_bid
{
	my $bits = '';

	vec($bits, $candidate->{pg_socket}, 1) = 1;
	until ($candidate->pg_ready)
	{
		select my $ready = $bits, undef, undef, 1;
	}
	$candidate->pg_result;
	my ($epoch) = $bid->fetchrow_array;
	undef $bid;
	return $epoch;
}

sub release
{
	my ($dbh, $epoch) = @_;
	$dbh->do('SELECT leader_release(?, ?)', undef, 'takeover', $epoch);
}

sub take_over
{
	my ($how, $epoch, $sent) = @_;
	my $from = $sent + TTL;

	if ($how eq 'release')
	{
		$from = monotonic();
		release($leader, $epoch);
	}
	my $next = result_of_bid();
	my $until = monotonic();
	if (!$next)
	{
		$starved++;
		stop_writers();
		return;
	}
	push @{ $ms{"takeover after $how"} }, ($until - $from) * 1000;
	refuse_writers($next);
}

# All writers end by themselves, and none has committed since the takeover.
sub refuse_writers
{
	my $next = shift;
	my $written = value($observer, 'SELECT sum(n) FROM written');

	waitpid $writers, 0;
	my $status = $? >> 8;
	undef $writers;
	die "the writers were not refused\n" unless $status == 2;
	die "a writer committed after the takeover\n"
	  if value($observer, 'SELECT sum(n) FROM written') != $written;
	release($candidate, $next);
}

sub percentile
{
	my ($part, @values) = @_;
	return $values[ceil($part * @values) - 1];
}

sub report
{
	print "| | times | median | p99 | max |\n|---|---|---|---|---|\n";
	for my $what (sort keys %ms)
	{
		my @sorted = sort { $a <=> $b } @{ $ms{$what} };
		printf "| %s | %d | %.1f | %.1f | %.1f |\n", $what, scalar @sorted,
		  map { percentile($_, @sorted) } 0.5, 0.99, 1;
	}
	printf "\n%d of %d takeovers starved for 10 s; %d fenced commits by %d writers.\n",
	  $starved, $rounds, $commits, WRITERS;
}
