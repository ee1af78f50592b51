# Waiting in leader_acquire and leader_acquire_session, by each for each kind of
# term: woken by every end of it, ended by everything that ends a statement, a
# session or the server, and then nothing is left behind.
#
# Guards that whoever has gone away while waiting never becomes the leader, and
# P4: a wait never ends before the term does.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use Test::More;
use Time::HiRes qw(usleep);

# The fourth field of the lock tag of session terms, "LE"
my $tag = 0x4c45;

my $node = new_node('main');
my $dbh = connect_to($node);
my $waiter = connect_to($node);
my $pid = backend_pid($waiter);

# The wait event has the extension's own name where the server has those.
my $event =
  $node->pg_version >= 17 ? qr/^active Extension LeaderElectionAcquire$/ : qr/^active Extension Extension$/;

# Waits end after 10 s at the latest, so a wait that nothing woke loses.
my %bids = (
	lease => "SELECT is_leader, epoch, leader FROM leader_acquire(?, 'waiter', '1 hour', '10 s')",
	session => "SELECT is_leader, epoch, leader FROM leader_acquire_session(?, 'waiter', NULL, '10 s')");
my @kinds = sort keys %bids;

sub start_bid
{
	my ($kind, $election) = @_;
	start_query($waiter, $bids{$kind}, $election);
	wait_for_state($dbh, $pid, $event);
	return;
}

# A term for others to wait for, led by a session of its own
sub begin
{
	my ($kind, $election, $ttl) = @_;
	my $session = connect_to($node);
	my $term = $kind eq 'session'
	  ? row($session, 'SELECT * FROM leader_acquire_session(?, ?, ?::interval)',
		$election, 'leader', $ttl)
	  : acquire($session, $election, 'leader', $ttl // '1 hour');

	die "no term of $election" unless is_leader($term);
	return ($session, $term->{epoch});
}

sub status
{
	my ($election) = @_;
	return row($dbh, 'SELECT * FROM leader_status WHERE election = ?', $election);
}

# What a process holds of ours: locks of elections and of session terms.
sub locks
{
	my ($process) = @_;
	return value($dbh,
		"SELECT count(*) FROM pg_locks
		  WHERE pid = ? AND (locktype = 'advisory' AND objsubid = ?
		     OR locktype = 'object' AND classid = 'leader_election_state'::regclass
		     OR locktype = 'relation' AND relation IN
		        (SELECT c.oid FROM pg_class c WHERE relname LIKE 'leader\\_%'))",
		$process, $tag);
}

sub renew_waiter
{
	$waiter = connect_to($node);
	$pid = backend_pid($waiter);
	return;
}

# A short statement_timeout may strike any statement on a slow machine.
sub certainly
{
	my ($sql) = @_;
	return poll_until(sub { sqlstate($waiter, $sql) eq '00000' }, $sql);
}

sub wait_gone
{
	my ($process) = @_;
	return poll_until(
		sub { !value($dbh, 'SELECT count(*) FROM pg_stat_activity WHERE pid = ?', $process) },
		'the end of a session');
}

# What ends a term
my %ends = (
	'a release' => sub { value($_[0], 'SELECT leader_release(?, ?)', $_[1], $_[2]) },
	'a release in a transaction' => sub {
		$_[0]->do('BEGIN');
		value($_[0], 'SELECT leader_release(?, ?)', $_[1], $_[2]);
		wait_for_state($dbh, $pid, $event);
		is(query_done($waiter) ? 'ended' : 'waits', 'waits',
			'P4: an open release lets nobody in');
		$_[0]->do('COMMIT');
	});
my %session_ends = (
	%ends,
	'the end of its session' => sub { $_[0]->disconnect },
	'the termination of its session' =>
	  sub { value($dbh, 'SELECT pg_terminate_backend(?)', backend_pid($_[0])) },
	'DISCARD ALL' => sub { $_[0]->do('DISCARD ALL') },
	'pg_advisory_unlock_all' => sub { value($_[0], 'SELECT pg_advisory_unlock_all()') });

# How long it took, for each end of each kind
my %woken;

foreach my $kind (@kinds)
{
	foreach my $held (
		[ 'lease', undef, \%ends ],
		[ 'session', undef, \%session_ends ],
		[ 'session', '1 hour', \%session_ends ])
	{
		my ($held_kind, $ttl, $held_ends) = @$held;
		my $term = $held_kind . ($ttl ? ' with a TTL' : '');

		# Three rounds where nothing but a word wakes early; see %woken.
		foreach my $end ((sort keys %$held_ends) x ($held_kind eq 'lease' ? 3 : 1))
		{
			my $round = 1 + @{ $woken{"$end of a $held_kind"} // [] };
			my $what = "$end of a $term, awaited by a $kind, $round";
			my ($leader, $epoch) = begin($held_kind, $what, $ttl);

			start_bid($kind, $what);
			is(locks($pid), 0, "$what: P6: who waits holds no lock");
			my $since = now();
			$held_ends->{$end}->($leader, $what, $epoch);
			my ($state, $rows) = finish_query($waiter);
			push @{ $woken{"$end of a $held_kind"} }, elapsed($since);
			note(sprintf '%s: %.0f ms', $what, 1000 * elapsed($since));
			is($state, '00000', "$what: wakes");
			ok($rows->[0]->{is_leader}, "$what: leads to the next term");
			cmp_ok($rows->[0]->{epoch}, '>', $epoch, "$what: P1: with a higher epoch");
			my $status = status($what);
			is("$status->{leader} $status->{kind} $status->{epoch}",
				"waiter $kind $rows->[0]->{epoch}", "$what: as the view says");
			value($waiter, 'SELECT leader_release(?, ?)', $what, $rows->[0]->{epoch});
			is(locks($pid), 0, "$what: nothing is left after its release");
		}

		# A term that goes on, after all
		my $what = "a rolled back release of a $term, awaited by a $kind";
		my ($leader, $epoch) = begin($held_kind, $what, $ttl);
		start_bid($kind, $what);
		$leader->do('BEGIN');
		value($leader, 'SELECT leader_release(?, ?)', $what, $epoch);
		$leader->do('ROLLBACK');
		ok(is_leader(renew($leader, $what, $epoch)), "$what: P4: the leader goes on");
		wait_for_state($dbh, $pid, $event);
		ok(!query_done($waiter), "$what: who waits waits on");
		value($leader, 'SELECT leader_release(?, ?)', $what, $epoch);
		my ($state, $rows) = finish_query($waiter);
		ok($rows->[0]->{is_leader}, "$what: until the end");
		value($waiter, 'SELECT leader_release(?, ?)', $what, $rows->[0]->{epoch});
	}

	# A term that was begun and rolled back
	{
		my $what = "a rolled back begin, awaited by a $kind";
		my $leader = connect_to($node);

		foreach my $other (@kinds)
		{
			$leader->do('BEGIN');
			value($leader,
				$other eq 'session'
				? 'SELECT leader_acquire_session(?, ?)'
				: "SELECT leader_acquire(?, ?, '1 hour')",
				$what, 'leader');
			start_bid($kind, $what);
			$leader->do('ROLLBACK');
			my ($state, $rows) = finish_query($waiter);
			ok($rows->[0]->{is_leader}, "$what of a $other: wakes");
			value($waiter, 'SELECT leader_release(?, ?)', $what, $rows->[0]->{epoch});
		}
	}

	# The timer
	foreach my $held_kind (@kinds)
	{
		my $what = "the expiry of a $held_kind, awaited by a $kind";
		my $since = now();
		my ($leader, $epoch) = begin($held_kind, $what, '1 s');

		start_query($waiter, $bids{$kind}, $what);
		my ($state, $rows) = finish_query($waiter);
		note(sprintf '%s: after %.0f ms', $what, 1000 * elapsed($since));
		ok($rows->[0]->{is_leader}, "$what: wakes");
		cmp_ok(elapsed($since), '>=', 1, "$what: P4: not before it");
		value($waiter, 'SELECT leader_release(?, ?)', $what, $rows->[0]->{epoch});
	}

	# A wait that nothing ends
	{
		my $what = "a wait in vain by a $kind";
		my ($leader, $epoch) = begin('session', $what);
		my $since = now();
		(my $bid = $bids{$kind}) =~ s/10 s/500 ms/;

		start_query($waiter, $bid, $what);
		my ($state, $rows) = finish_query($waiter);
		ok(!$rows->[0]->{is_leader}, "$what: is lost");
		is($rows->[0]->{epoch}, undef, "$what: nobody learns another's epoch");
		is($rows->[0]->{leader}, 'leader', "$what: but who leads");
		cmp_ok(elapsed($since), '>=', 0.5, "$what: after as long as was asked for");
	}

	# Everything that ends a statement or a session
	foreach my $held_kind (@kinds)
	{
		my $term = "a wait of a $kind for a $held_kind";
		my ($leader, $epoch) = begin($held_kind, $term);
		my %errors = (
			'pg_cancel_backend' =>
			  [ '57014', sub { value($dbh, 'SELECT pg_cancel_backend(?)', $pid) } ],
			'pg_terminate_backend' =>
			  [ '57P01', sub { value($dbh, 'SELECT pg_terminate_backend(?)', $pid) } ],
			'statement_timeout' =>
			  [ '57014', undef, "SET statement_timeout = '200 ms'" ]);

		foreach my $error (sort keys %errors)
		{
			foreach my $in ('', 'BEGIN')
			{
				my ($state, $do, $set) = @{ $errors{$error} };
				my $what = "$error of $term" . ($in ? ' in a transaction' : '');

				$waiter->do($_) for grep { $_ } $set, $in;
				start_query($waiter, $bids{$kind}, $term);
				wait_for_state($dbh, $pid, $event) if $do;
				$do->() if $do;
				is(finish_query($waiter), $state, "$what: ends it");
				if ($state eq '57P01')
				{
					wait_gone($pid);
					is(locks($pid), 0, "$what: nothing is held");
					renew_waiter();
				}
				else
				{
					is(locks($pid), 0, "$what: nothing is held");
					certainly($_) for 'ROLLBACK', 'RESET ALL';
				}
				is(status($term)->{terms}, 1, "$what: no new term");
				ok(is_leader(renew($leader, $term, $epoch)), "$what: the leader leads on");
			}
		}

		# Nothing is left that would wait, or lead, when the term ends.
		value($leader, 'SELECT leader_release(?, ?)', $term, $epoch);
		is(status($term)->{state}, 'free', "$term: it is free at its end");
		my $bid = acquire($dbh, $term, 'next', '1 hour');
		ok(is_leader($bid), "$term: and for whoever asks");
		value($dbh, 'SELECT leader_release(?, ?)', $term, $bid->{epoch});
	}
}

# By itself a waiting call looks for its client once a second, and at the term
# then.  The waits above began just before the end that they waited for, so
# without a word of that each would have taken nearly as long.  One of several
# is quick on any machine.
foreach my $end (sort keys %woken)
{
	my ($least) = sort { $a <=> $b } @{ $woken{$end} };
	cmp_ok($least, '<', 0.5, "$end wakes, rather than being found out");
}

# The client goes away while waiting, and the leader releases: at once, so that
# the backend cannot have noticed before it is woken, or later, by itself.
foreach my $kind (@kinds)
{
	foreach my $held_kind (@kinds)
	{
		foreach my $check (0, '100 ms')
		{
			foreach my $round ('at once', 'at once again', 'later')
			{
				my $what = "release $round of a $held_kind, the client of a waiting $kind"
				  . " is dead, client_connection_check_interval = $check";
				my ($leader, $epoch) = begin($held_kind, $what);
				my $worker = spawn_worker($node);
				(my $bid = $bids{$kind}) =~ s/\?/'$what'/;

				$worker->{run}->("SET client_connection_check_interval = '$check'");
				$worker->{ask}->($bid);
				wait_for_state($dbh, $worker->{backend}, $event);
				kill 'KILL', $worker->{pid};
				# Its sockets are closed before it can be waited for.
				waitpid $worker->{pid}, 0;
				wait_gone($worker->{backend}) if $round eq 'later';
				value($leader, 'SELECT leader_release(?, ?)', $what, $epoch);
				wait_gone($worker->{backend});
				my $status = status($what);
				is($status->{terms}, 1, "$what: who has gone never leads");
				is($status->{state}, 'free', "$what: the election is free");
				is(locks($worker->{backend}), 0, "$what: nothing is held");
				ok(is_leader(acquire($dbh, $what, 'next', '1 hour')),
					"$what: the next one need not wait for a lease that nobody has");
				$worker->{end}->();
				$leader->disconnect;
			}
		}
	}
}

# statement_timeout and the release at one moment: either the waiter leads and
# knows it, or it does not and nothing is held.
my %outcomes = (won => 0, timeout => 0);
my $delay = 50_000;
my ($leader) = begin('lease', 'the leader of the race');
$waiter->do("SET statement_timeout = '50 ms'");
my @wrong;
foreach my $round (1 .. 50)
{
	my $kind = $kinds[ $round % 2 ];
	my $bid = acquire($leader, 'race', 'leader', '1 hour');

	push @wrong, "round $round: not free before" unless is_leader($bid);
	start_query($waiter, $bids{$kind}, 'race');
	usleep($delay);
	value($leader, 'SELECT leader_release(?, ?)', 'race', $bid->{epoch});
	my ($state, $rows) = finish_query($waiter);
	my $status = status('race');
	my $held = locks($pid);

	if ($state eq '57014')
	{
		$outcomes{timeout}++;
		$delay -= 1_000 if $delay > 2_000;
		push @wrong, "round $round: $held locks are held after an error" if $held;
		push @wrong, "round $round: leads after an error" if $status->{state} ne 'free';
	}
	elsif ($state eq '00000' && $rows->[0]->{is_leader})
	{
		$outcomes{won}++;
		$delay += 700;
		push @wrong, "round $round: leads, and is not shown"
		  if ($status->{leader} // '') ne 'waiter' || $status->{epoch} != $rows->[0]->{epoch};
		push @wrong, "round $round: $held locks are held by a $kind"
		  if $held != ($kind eq 'session' ? 1 : 0);
		certainly('RESET statement_timeout');
		value($waiter, 'SELECT leader_release(?, ?)', 'race', $rows->[0]->{epoch});
		$waiter->do("SET statement_timeout = '50 ms'");
		push @wrong, "round $round: locks are held after the release" if locks($pid);
	}
	else
	{
		push @wrong, "round $round: $state";
	}
}
note("the waiter won $outcomes{won} times and timed out $outcomes{timeout} times");
is_deeply(\@wrong, [], 'a release that races with statement_timeout leaves nothing behind');
certainly('RESET statement_timeout');

# The postmaster dies.
{
	my @waiting;

	foreach my $kind (@kinds)
	{
		foreach my $held_kind (@kinds)
		{
			my $what = "postmaster death, a $kind waits for a $held_kind";
			my ($leader, $epoch) = begin($held_kind, $what);
			my $session = connect_to($node);

			start_query($session, $bids{$kind}, $what);
			wait_for_state($dbh, backend_pid($session), $event);
			push @waiting, { what => $what, session => $session, leader => $leader };
		}
	}
	my $postmaster = $node->{_pid};
	my @old = map { backend_pid($_->{session}) } @waiting;
	my $since = now();

	# A process that is gone may be left to be reaped, and then runs nothing.
	kill 'KILL', $postmaster;
	poll_until(sub { !grep { readlink "/proc/$_/exe" } @old }, 'the end of who waits');
	note(sprintf 'all gone after %.0f ms', 1000 * elapsed($since));
	foreach my $waiting (@waiting)
	{
		my ($state, $rows) = finish_query($waiting->{session});
		isnt($state, '00000', "$waiting->{what}: ends the wait");
	}
	$node->{_pid} = undef;
	unlink $node->data_dir . '/postmaster.pid',
	  sprintf('%s/.s.PGSQL.%d.lock', $node->host, $node->port);
	poll_until(sub { !eval { value($dbh, 'SELECT 1') } }, 'the end of all sessions');
	$node->start;
	$dbh = connect_to($node);
	is(status($_->{what})->{terms}, 1, "$_->{what}: no new term was begun") for @waiting;
}

done_testing();
