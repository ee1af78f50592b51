# A session term ends with its connection, however that ends; and the next
# candidate, of either kind, leads at once.
#
# Guards P1 and P2 for terms whose holder died: its epoch is refused as soon as
# the next term is there; P4: nobody leads before; and what the views say then:
# a session that died is never shown as leader, and its term is known to have
# ended so.  A term with a TTL is bound to both, so a frozen process loses it
# while its connection, and its lock, live on.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use Test::More;

# The fourth field of the lock tag of session terms, "LE"
my $tag = 0x4c45;

my $node = new_node('main', conf => 'restart_after_crash = on');
my ($dbh, $late);

sub reconnect
{
	$dbh = connect_to($node);
	$late = connect_to($node);
	return;
}

reconnect();
$dbh->do('CREATE TABLE written (election text, epoch bigint)');

# A term's view, and what is known of it.
sub status
{
	my ($election) = @_;
	return row($dbh, 'SELECT * FROM leader_status WHERE election = ?', $election);
}

sub term
{
	my ($election, $epoch) = @_;
	return row($dbh, 'SELECT * FROM leader_term WHERE election = ? AND epoch = ?',
		$election, $epoch);
}

sub acquire_session
{
	my ($session, $election, $holder, $ttl, $wait) = @_;
	return row($session,
		'SELECT is_leader, epoch, leader, extract(epoch FROM expires_in)::float8 AS expires_in
		   FROM leader_acquire_session(?, ?, ?::interval, ?::interval)',
		$election, $holder, $ttl, $wait // '0');
}

sub bid
{
	my ($session, $kind, $election, $holder, $wait) = @_;
	return $kind eq 'session'
	  ? acquire_session($session, $election, $holder, undef, $wait)
	  : acquire($session, $election, $holder, '1 hour', $wait);
}

# Is it true for a worker, which reads lines and tells the SQLSTATE only?
sub true_for
{
	my ($worker, $condition) = @_;

	$condition =~ s/\s+/ /g;
	my $state = $worker->{run}->("SELECT 1 / ($condition)::int");
	return { '00000' => 'true', '22012' => 'false' }->{$state} // $state;
}

sub wait_gone
{
	my ($pid) = @_;
	return poll_until(
		sub { !value($dbh, 'SELECT count(*) FROM pg_stat_activity WHERE pid = ?', $pid) },
		'the end of a session');
}

# Sockets are closed before a process can be waited for.
sub kill_client
{
	my ($worker) = @_;

	kill 'KILL', $worker->{pid};
	waitpid $worker->{pid}, 0;
	return;
}

# Every way for the connection to end
my %ways = (
	'the client disconnects' => sub { $_[0]->{end}->() },
	'the client disconnects in a transaction' => sub {
		$_[0]->{run}->('BEGIN');
		$_[0]->{end}->();
	},
	'the client is killed' => sub { kill_client($_[0]) },
	'the client is killed in a transaction' => sub {
		$_[0]->{run}->('BEGIN');
		kill_client($_[0]);
	},
	'the client is killed while its backend is busy' => sub {
		$_[0]->{run}->("SET client_connection_check_interval = '100 ms'");
		$_[0]->{ask}->('SELECT pg_sleep(600)');
		wait_for_state($dbh, $_[0]->{backend}, qr/^active Timeout PgSleep/);
		kill_client($_[0]);
	},
	'pg_terminate_backend' =>
	  sub { value($dbh, 'SELECT pg_terminate_backend(?)', $_[0]->{backend}) },
	'pg_terminate_backend of a busy one' => sub {
		$_[0]->{ask}->('SELECT pg_sleep(600)');
		wait_for_state($dbh, $_[0]->{backend}, qr/^active Timeout PgSleep/);
		value($dbh, 'SELECT pg_terminate_backend(?)', $_[0]->{backend});
	},
	'idle_session_timeout' =>
	  sub { $_[0]->{run}->("SET idle_session_timeout = '50 ms'") },
	'idle_in_transaction_session_timeout' => sub {
		$_[0]->{run}->("SET idle_in_transaction_session_timeout = '50 ms'");
		$_[0]->{run}->('BEGIN');
	});

# One session leads several elections, so all that happens at its end can be
# seen in one go: terms without and with a TTL, with a waiter or without, and
# the next candidate of either kind.
my @cases;
foreach my $ttl (undef, '1 hour')
{
	foreach my $next ('lease', 'session')
	{
		foreach my $waits (0, 1)
		{
			push @cases, {
				ttl => $ttl,
				next => $next,
				waits => $waits,
				name => ($ttl ? 'with a TTL' : 'without a TTL')
				  . ", next a $next" . ($waits ? ' that waits' : '')
			};
		}
	}
}

# The next session, its terms and the fenced transactions of the old ones end
# with this.
sub check_next
{
	my ($what, $election, $old, $old_holder, $next_kind, $next, $bid) = @_;

	ok(is_leader($bid), "$what: leads");
	cmp_ok($bid->{epoch}, '>', $old->{epoch}, "$what: P1: by a higher epoch");
	my $status = status($election);
	is($status->{leader}, $next, "$what: is shown as leader");
	is($status->{kind}, $next_kind, "$what: with its kind");
	is($status->{epoch}, $bid->{epoch}, "$what: and epoch");
	is($status->{pid}, $next_kind eq 'session' ? $bid->{pid} : undef,
		"$what: and process");
	my $term = term($election, $old->{epoch});
	is($term->{end_reason}, 'session_ended', "$what: the old term ended so");
	is($term->{leader}, $old_holder, "$what: and was the old holder's");
	is( value($dbh,
			'SELECT ended_at >= acquired_at AND ended_at <= clock_timestamp()
			   FROM leader_term WHERE election = ? AND epoch = ?',
			$election, $old->{epoch}),
		1, "$what: at a time that can be");
	is(sqlstate($dbh, 'SELECT leader_fence(?, ?)', $election, $old->{epoch}),
		'LE001', "$what: P2: the old epoch is refused");
	is( value($dbh, 'SELECT leader_check(?, ?)', $election, $old->{epoch}),
		0, "$what: and not current");
	ok(!is_leader(renew($dbh, $election, $old->{epoch})),
		"$what: nor can be renewed");
	return;
}

foreach my $way (sort keys %ways)
{
	my $worker = spawn_worker($node);
	my $pid = $worker->{backend};
	my @next;

	foreach my $case (@cases)
	{
		my $election = "$way, $case->{name}";
		my $ttl = $case->{ttl} ? "'$case->{ttl}'" : 'NULL';

		$worker->{run}->("SELECT leader_acquire_session('$election', 'dying', $ttl)");
		my $old = status($election);
		is($old->{leader}, 'dying', "$election: led before");
		is($old->{pid}, $pid, "$election: by the worker's session");

		# A late write of the old term, begun while it was the current one
		my $session = connect_to($node);
		my $writer = connect_to($node);
		$writer->do('BEGIN');
		value($writer, 'SELECT leader_fence(?, ?)', $election, $old->{epoch});
		$writer->do('INSERT INTO written VALUES (?, ?)', undef, $election, $old->{epoch});

		my $bid = bid($session, $case->{next}, $election, 'next');
		ok(!is_leader($bid), "$election: P4: not led by another");
		is($bid->{leader}, 'dying', "$election: who is told by whom it is led");
		push @next, {
			case => $case,
			election => $election,
			old => $old,
			session => $session,
			writer => $writer
		};
	}

	foreach my $next (grep { $_->{case}->{waits} } @next)
	{
		my $function = $next->{case}->{next} eq 'session'
		  ? 'leader_acquire_session(?, ?, NULL, ?)'
		  : "leader_acquire(?, ?, '1 hour', ?)";
		start_query($next->{session},
			"SELECT is_leader, epoch, leader FROM $function",
			$next->{election}, 'next', '10 s');
		wait_for_state($dbh, backend_pid($next->{session}), qr/Extension/);
	}

	my $since = now();
	$ways{$way}->($worker);
	foreach my $next (grep { $_->{case}->{waits} } @next)
	{
		my ($state, $rows) = finish_query($next->{session});
		is($state, '00000', "$next->{election}: the waiter is woken");
		$next->{bid} = $rows->[0];
	}
	note(sprintf '%s: all waiters woken after %.0f ms', $way, 1000 * elapsed($since));

	wait_gone($pid);
	is( value($dbh, 'SELECT count(*) FROM leader_status WHERE leader = ? OR pid = ?',
			'dying', $pid),
		0, "$way: who died is not shown as leader");
	is( value($dbh, "SELECT count(*) FROM pg_locks
			WHERE locktype = 'advisory' AND objsubid = ? AND pid = ?", $tag, $pid),
		0, "$way: and holds no lock");
	foreach my $next (grep { !$_->{case}->{waits} } @next)
	{
		my $status = status($next->{election});
		my ($election, $old) = ($next->{election}, $next->{old});

		is($status->{state}, 'expired', "$election: over, and nobody's");
		is($status->{expires_in}, undef, "$election: with no time left");
		is(term($election, $old->{epoch})->{end_reason},
			'session_ended', "$election: ended so, before a next term");
		is( value($dbh, 'SELECT leader_check(?, ?)', $election, $old->{epoch}),
			0, "$election: the old epoch is not current");
		is(sqlstate($dbh, 'SELECT leader_fence(?, ?)', $election, $old->{epoch}),
			'00000', "$election: but for the fence it is, until the next term");
		$next->{bid} = bid($next->{session}, $next->{case}->{next}, $election, 'next');
	}
	foreach my $next (@next)
	{
		$next->{bid}->{pid} = backend_pid($next->{session});
		check_next($next->{election}, $next->{election}, $next->{old}, 'dying',
			$next->{case}->{next}, 'next', $next->{bid});
		is(sqlstate($next->{writer}, 'COMMIT'),
			'LE001', "$next->{election}: P2: a late write does not commit");
		$_->disconnect for $next->{session}, $next->{writer};
	}
	$worker->{end}->();
}
is(value($dbh, 'SELECT count(*) FROM written'),
	0, 'P2: no late write of a term that was replaced is there');

# statement_timeout and cancel end a statement, and nothing else.
{
	my $leader = connect_to($node);
	my $term = acquire_session($leader, 'goes on', 'leader');
	my $timed = acquire_session($leader, 'goes on with a TTL', 'leader', '1 hour');
	my %ends = (
		'statement_timeout' => ["SET statement_timeout = '50 ms'", 'SELECT pg_sleep(600)', '57014'],
		'an error' => ['RESET statement_timeout', 'SELECT 1/0', '22012']);

	foreach my $in ('by itself', 'in a transaction')
	{
		foreach my $end (sort keys %ends)
		{
			my ($before, $sql, $state) = @{ $ends{$end} };

			$leader->do($before);
			$leader->do('BEGIN') if $in eq 'in a transaction';
			is(sqlstate($leader, $sql), $state, "$end ends a statement $in");
			$leader->do('ROLLBACK') if $in eq 'in a transaction';
			$leader->do('RESET statement_timeout');
			foreach my $mine (
				[ 'goes on', $term, undef ],
				[ 'goes on with a TTL', $timed, '1 hour' ])
			{
				my ($election, $held, $ttl) = @$mine;

				is( value($leader, 'SELECT leader_check(?, ?)', $election, $held->{epoch}),
					1, "$election: the term does");
				is( acquire_session($leader, $election, 'leader', $ttl)->{epoch},
					$held->{epoch}, "$election: under its epoch");
				is(status($election)->{leader}, 'leader', "$election: in the view too");
				ok(!is_leader(bid($dbh, $_, $election, 'next')),
					"$election: P4: no $_ takes over")
				  for 'lease', 'session';
			}
		}
	}

	start_query($leader, 'SELECT pg_sleep(600)');
	wait_for_state($dbh, backend_pid($leader), qr/PgSleep/);
	value($dbh, 'SELECT pg_cancel_backend(?)', backend_pid($leader));
	is(finish_query($leader), '57014', 'pg_cancel_backend ends a statement');
	is( value($leader, 'SELECT leader_check(?, ?)', 'goes on', $term->{epoch}),
		1, 'and not the term');
	$leader->disconnect;
}

# The server looks at a connection between statements only, unless told
# otherwise: a term without a TTL lasts as long as its backend is at work.
{
	my $worker = spawn_worker($node);
	my $pid = $worker->{backend};

	$worker->{run}->("SELECT leader_acquire_session('busy', 'dead')");
	my $old = status('busy');
	value($dbh, 'SELECT pg_advisory_lock(1)');
	$worker->{ask}->('SELECT pg_advisory_lock(1)');
	wait_for_state($dbh, $pid, qr/^active Lock advisory/);
	kill_client($worker);
	ok(!is_leader(bid($dbh, 'lease', 'busy', 'next')),
		'P4: a backend that is at work for a dead client leads on');
	is(status('busy')->{leader}, 'dead', 'and is shown as leader, as it holds the lock');
	value($dbh, 'SELECT pg_advisory_unlock(1)');
	my $bid = bid($late, 'session', 'busy', 'next', '10 s');
	$bid->{pid} = backend_pid($late);
	check_next('at the end of the statement', 'busy', $old, 'dead', 'session', 'next', $bid);
	value($late, 'SELECT leader_release(?, ?)', 'busy', $bid->{epoch});
	wait_gone($pid);
	$worker->{end}->();
}

# Frozen: the client, or its backend.  The lock is held all the time, so only
# the time of the lease can end such a term; where it has none, nothing does.
foreach my $frozen ('client', 'backend')
{
	foreach my $next ('lease', 'session')
	{
		my $election = "frozen $frozen, next a $next";
		my $worker = spawn_worker($node);
		my $candidate = connect_to($node);
		my $pid = $worker->{ $frozen eq 'client' ? 'pid' : 'backend' };
		my $since = now();

		$worker->{run}->("SELECT leader_acquire_session('$election', 'frozen', '1 s')");
		$worker->{run}->("SELECT leader_acquire_session('$election, no TTL', 'frozen')");
		my $epoch = value($dbh,
			'SELECT max(epoch) FROM leader_term WHERE election = ?', $election);
		$worker->{run}->('BEGIN');
		is($worker->{run}->("SELECT leader_fence('$election', $epoch)"),
			'00000', "$election: fenced before");
		$worker->{run}->("INSERT INTO written VALUES ('$election', $epoch)");

		kill 'STOP', $pid;
		# What a frozen backend is asked to do waits for it.
		$worker->{ask}->('COMMIT') if $frozen eq 'backend';
		my $bid = bid($candidate, $next, $election, 'next', '10 s');
		ok(is_leader($bid), "$election: taken over");
		cmp_ok(elapsed($since), '>=', 1, "$election: P4: and not before the lease ran out");
		cmp_ok($bid->{epoch}, '>', $epoch, "$election: P1: by a higher epoch");
		is( value($dbh,
				"SELECT count(*) FROM pg_locks
				  WHERE locktype = 'advisory' AND objsubid = ? AND pid = ?
				    AND (classid::bigint << 32) + objid::bigint = ? AND granted",
				$tag, $worker->{backend}, $epoch),
			1, "$election: although the lock is still held");
		is(term($election, $epoch)->{end_reason}, 'expired', "$election: the term expired");
		is(status($election)->{leader}, 'next', "$election: the view shows the next one");
		is(status("$election, no TTL")->{leader},
			'frozen', "$election: a term without a TTL goes on");
		ok(!is_leader(bid($candidate, $_, "$election, no TTL", 'next')),
			"$election: P4: and no $_ takes it over")
		  for 'lease', 'session';

		kill 'CONT', $pid;
		if ($frozen eq 'client')
		{
			# That question ends a transaction by its answer.
			$worker->{run}->('SAVEPOINT question');
			is(true_for($worker, "leader_check('$election', $epoch)"),
				'false', "$election: resumed, not leader");
			$worker->{run}->('ROLLBACK TO question');
			$worker->{ask}->('COMMIT');
		}
		is($worker->{answer}->(), 'LE001', "$election: P2: its commit is refused");
		is($worker->{run}->("SELECT leader_fence('$election', $epoch)"),
			'LE001', "$election: P2: and so is its fence");
		is(true_for($worker, "leader_check('$election', $epoch)"),
			'false', "$election: it is not leader");
		is( true_for($worker, "(SELECT is_leader FROM leader_renew('$election', $epoch))"),
			'false', "$election: nor by renewing");
		is( true_for($worker,
				"(SELECT is_leader FROM leader_acquire_session('$election', 'frozen', '1 s'))"),
			'false', "$election: nor by asking again");
		is( true_for($worker,
				"leader_check('$election, no TTL', (SELECT epoch FROM leader_status
				  WHERE election = '$election, no TTL'))"),
			'true', "$election: without a TTL it leads on");
		is( value($candidate, 'SELECT leader_check(?, ?)', $election, $bid->{epoch}),
			1, "$election: the next leader is untouched");

		$worker->{end}->();
		wait_gone($worker->{backend});
		is( value($candidate, 'SELECT leader_check(?, ?)', $election, $bid->{epoch}),
			1, "$election: also by the end of that session");
		is(status($election)->{leader}, 'next', "$election: in the view too");
		$candidate->disconnect;
	}
}
is(value($dbh, 'SELECT count(*) FROM written'),
	0, 'P2: no write of a frozen leader is there');

# The server ends: all sessions do.
my %crashes = (
	'immediate stop' => sub {
		$node->stop('immediate');
		$node->start;
	},
	'clean restart' => sub { $node->restart },
	# The server restarts by itself when one of its processes dies.
	'crash of another session' => sub {
		my $victim = connect_to($node);

		kill 'KILL', backend_pid($victim);
		poll_until(sub { sqlstate($dbh, 'SELECT 1') ne '00000' }, 'the end of all sessions');
		$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()')
		  or die 'no restart';
	});

foreach my $crash (sort keys %crashes)
{
	my $leader = connect_to($node);
	my (@elections, %old);

	foreach my $case (grep { !$_->{waits} } @cases)
	{
		my $election = "$crash, $case->{name}";

		push @elections, [ $election, $case->{next} ];
		$old{$election} = acquire_session($leader, $election, 'dying', $case->{ttl});
		ok(is_leader($old{$election}), "$election: led before");
	}
	$crashes{$crash}->();
	reconnect();
	isnt(sqlstate($leader, 'SELECT 1'), '00000', "$crash: the session has ended");
	is(value($dbh, "SELECT count(*) FROM leader_status WHERE leader = 'dying'"),
		0, "$crash: nobody that died is shown as leader");
	foreach my $next (@elections)
	{
		my ($election, $kind) = @$next;
		my $old = $old{$election};

		is(term($election, $old->{epoch})->{end_reason},
			'session_ended', "$election: its term has ended");
		is( value($dbh, 'SELECT leader_check(?, ?)', $election, $old->{epoch}),
			0, "$election: is not current");
		ok(!is_leader(renew($dbh, $election, $old->{epoch})), "$election: nor renewed");
		$late->do('BEGIN');
		is(sqlstate($late, 'SELECT leader_fence(?, ?)', $election, $old->{epoch}),
			'00000', "$election: for the fence it is, until the next term");
		$late->do('INSERT INTO written VALUES (?, ?)', undef, $election, $old->{epoch});
		my $session = connect_to($node);
		my $bid = bid($session, $kind, $election, 'next');
		$bid->{pid} = backend_pid($session);
		check_next($election, $election, $old, 'dying', $kind, 'next', $bid);
		is(sqlstate($late, 'COMMIT'), 'LE001', "$election: P2: a late write does not commit");
		$session->disconnect;
	}
}
is(value($dbh, 'SELECT count(*) FROM written'),
	0, 'P2: no late write of a term from before a crash is there');

done_testing();
