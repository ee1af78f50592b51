# An operator deposes a leader: by which way it loses, and what that costs.
#
# Guards P2 for sessions that lead without a TTL, which pass the fence by their own
# lock and read no row: their backend has ended before anything is said to have
# ended, so nothing that it had open is ever committed, whether it was idle, in a
# transaction, busy, or waited.  One that cannot be ended in time is left as it is,
# with an error.  A session with a TTL is fenced, and lives on.  And who may do so.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use Test::More;

# The fourth field of the lock tag of session terms, "LE"
my $tag = 0x4c45;

my $node = new_node('main');
my $dbh = connect_to($node);
my $operator = connect_to($node);
my @notices;

# What the server has to say about it
$operator->do('SET client_min_messages = notice');
$operator->{PrintWarn} = 1;
$dbh->do('CREATE TABLE job (done_by text)');
$dbh->do("SELECT leader_protect('job', 'job')");

sub acquire_session
{
	my ($session, $election, $holder, $ttl) = @_;
	return row($session,
		'SELECT is_leader, epoch, leader FROM leader_acquire_session(?, ?, ?::interval)',
		$election, $holder, $ttl);
}

sub status
{
	my ($election) = @_;
	return row($dbh, 'SELECT * FROM leader_status WHERE election = ?', $election);
}

sub reason
{
	my ($epoch) = @_;
	return value($dbh, 'SELECT end_reason FROM leader_term WHERE epoch = ?', $epoch);
}

# Deposes, and answers the epoch drawn; the notices are kept.
sub depose
{
	my ($election, $session) = @_;
	$session //= $operator;
	@notices = ();
	local $SIG{__WARN__} = sub { push @notices, @_ };
	return value($session, 'SELECT leader_depose(?)', $election);
}

sub is_gone
{
	my ($pid) = @_;
	return !value($dbh, 'SELECT count(*) FROM pg_stat_activity WHERE pid = ?', $pid);
}

sub written { return value($dbh, 'SELECT count(*) FROM job'); }

# What becomes of an election whose leader was deposed by that call
sub check_deposed
{
	my ($case, $election, $old, $drawn) = @_;

	cmp_ok($drawn, '>', $old, "$case: P1: a higher epoch is drawn");
	my $status = status($election);
	is($status->{state}, 'free', "$case: nobody leads");
	is($status->{leader}, undef, "$case: nobody is named");
	is($status->{pid}, undef, "$case: nor a process");
	is(reason($old), 'deposed', "$case: the history says so");
	is(sqlstate($dbh, 'SELECT leader_fence(?, ?)', $election, $_),
		'LE001', "$case: P2: $_ is nobody's epoch")
	  for $old, $drawn;
	is( value($dbh, "SELECT count(*) FROM pg_locks
			WHERE locktype = 'advisory' AND objsubid = ? AND mode = 'ExclusiveLock'", $tag),
		0, "$case: no session's lock is left");
	my $bid = acquire($dbh, $election, 'next', '1 hour');
	ok(is_leader($bid), "$case: the next leads at once");
	cmp_ok($bid->{epoch}, '>', $drawn, "$case: P1: by a higher epoch still");
	value($dbh, 'SELECT leader_release(?, ?)', $election, $bid->{epoch});
	return;
}

#
# A session without a TTL: its backend ends, whatever it is at.
#
my %busy = (
	'idle' => sub { },
	'idle in a transaction' => sub {
		$_[0]->do('BEGIN');
		$_[0]->do("INSERT INTO job VALUES ('late')");
	},
	'in a failed transaction' => sub {
		$_[0]->do('BEGIN');
		sqlstate($_[0], 'SELECT 1/0');
	},
	'in a long statement' => sub {
		$_[0]->do('BEGIN');
		$_[0]->do("INSERT INTO job VALUES ('late')");
		start_query($_[0], 'SELECT pg_sleep(600)');
		wait_for_state($dbh, backend_pid($_[0]), qr/^active Timeout PgSleep/);
	},
	'waiting for a lock' => sub {
		value($dbh, 'SELECT pg_advisory_lock(7)');
		$_[0]->do('BEGIN');
		$_[0]->do("INSERT INTO job VALUES ('late')");
		start_query($_[0], 'SELECT pg_advisory_lock(7)');
		wait_for_state($dbh, backend_pid($_[0]), qr/^active Lock advisory/);
	},
	'waiting for another election' => sub {
		start_query($_[0], "SELECT leader_acquire('elsewhere', 'me', '1 hour', '10 s')");
		wait_for_state($dbh, backend_pid($_[0]), qr/Extension/);
	},
	'leading more than this' => sub { acquire_session($_[0], 'more', 'leader'); });

acquire($dbh, 'elsewhere', 'somebody', '1 hour');
foreach my $what (sort keys %busy)
{
	my $leader = connect_to($node);
	my $pid = backend_pid($leader);
	my $old = acquire_session($leader, 'job', 'leader')->{epoch};

	$busy{$what}->($leader);
	my $drawn = depose('job');
	ok(is_gone($pid), "$what: its backend has ended when the call returns");
	like("@notices", qr/$pid/, "$what: and the operator is told which");
	isnt(sqlstate($leader, 'SELECT 1'), '00000', "$what: its client sees it");
	check_deposed($what, 'job', $old, $drawn);
	is(written(), 0, "$what: P2: nothing that it had open is there");
	is(status('more')->{state}, 'expired', "$what: all its terms have ended with it")
	  if $what =~ /more/;
	value($dbh, 'SELECT pg_advisory_unlock_all()');
	eval { $leader->disconnect };
}

# It does not wait for what its own transaction has not ended: the lock of the term
# is given back with it.
{
	my $leader = connect_to($node);
	my $old = acquire_session($leader, 'job', 'leader')->{epoch};

	$operator->do('BEGIN');
	depose('job');
	ok(is_gone(backend_pid($leader)), 'rolled back: the session has ended all the same');
	ok(!is_leader(acquire($dbh, 'job', 'next', '1 hour')), 'rolled back: nobody leads before that');
	$operator->do('ROLLBACK');
	is(status('job')->{state}, 'expired', 'rolled back: its term is over');
	is(reason($old), 'session_ended', 'rolled back: as its session has ended');
	my $bid = acquire($dbh, 'job', 'next', '1 hour');
	ok(is_leader($bid), 'rolled back: the next takes over');
	is(reason($old), 'session_ended', 'rolled back: and that is what the history says');
	value($dbh, 'SELECT leader_release(?, ?)', 'job', $bid->{epoch});
}

#
# The operator's own session is not ended.
#
foreach my $ttl (undef, '1 hour')
{
	my $case = $ttl ? 'own session with a TTL' : 'own session';
	my $old = acquire_session($operator, 'job', 'operator', $ttl)->{epoch};
	my $drawn = depose('job');

	is(value($operator, 'SELECT 1'), 1, "$case: it goes on");
	is("@notices", '', "$case: without a word");
	is(sqlstate($operator, "INSERT INTO job VALUES ('deposed')"),
		'LE002', "$case: it is no leader any more");
	check_deposed($case, 'job', $old, $drawn);
}

#
# A session with a TTL is fenced, and not ended.
#
{
	my $case = 'session with a TTL';
	my $leader = connect_to($node);
	my $old = acquire_session($leader, 'job', 'leader', '1 hour')->{epoch};

	$leader->do('BEGIN');
	$leader->do("INSERT INTO job VALUES ('late')");
	my $drawn = depose('job');
	is("@notices", '', "$case: nothing is ended");
	is(sqlstate($leader, 'COMMIT'), 'LE001', "$case: P2: what it had open cannot commit");
	is(value($leader, 'SELECT 1'), 1, "$case: it is there");
	ok(!is_leader(renew($leader, 'job', $old)), "$case: it is not leader");
	is(sqlstate($leader, "INSERT INTO job VALUES ('later')"), 'LE001', "$case: and cannot write as one");
	my $again = acquire_session($leader, 'job', 'leader', '1 hour');
	ok(is_leader($again), "$case: it may lead again");
	cmp_ok($again->{epoch}, '>', $drawn, "$case: P1: by a new epoch");
	is( value($dbh, "SELECT count(*) FROM pg_locks
			WHERE locktype = 'advisory' AND objsubid = ? AND pid = ?", $tag, backend_pid($leader)),
		1, "$case: and holds one lock");
	$leader->do("INSERT INTO job VALUES ('in time')");
	is(written(), 1, "$case: then it writes");
	$dbh->do('DELETE FROM job') if sqlstate($dbh, 'SET leader_election.enforce = off') eq '00000';
	$dbh->do('RESET leader_election.enforce');
	depose('job');
	$leader->disconnect;
}

#
# A backend that does not end: an error in time, and nothing has changed.
#
{
	my $case = 'frozen';
	my $worker = spawn_worker($node);
	$worker->{run}->("SELECT leader_acquire_session('frozen', 'leader')");
	my $before = status('frozen');
	freeze($worker->{backend});

	# A second one waits for less, as its statement_timeout says.
	my $impatient = connect_to($node);
	$impatient->do("SET statement_timeout = '500 ms'");
	is(sqlstate($impatient, "SELECT leader_depose('frozen')"), '57014', "$case: the wait can be cancelled");
	my $since = now();
	is(sqlstate($dbh, "SELECT leader_depose('frozen')"), '55P03', "$case: the operator is told");
	cmp_ok(elapsed($since), '>=', 10, "$case: not before 10 s");
	my $after = status('frozen');
	is($after->{$_}, $before->{$_}, "$case: $_ is as before") for qw(leader epoch state pid terms);
	ok(!is_leader(acquire($dbh, 'frozen', 'next', '1 hour')), "$case: P4: nobody else leads");
	is(reason($before->{epoch}), undef, "$case: the term has not ended");
	is( value($dbh, "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()
			AND locktype IN ('object', 'advisory')"), 0, "$case: no lock is left behind");
	thaw($worker->{backend});

	# It was told to end, and does so now.
	poll_until(sub { is_gone($worker->{backend}) }, 'the end of a session');
	is(reason($before->{epoch}), 'session_ended', "$case: thawed it ends");
	my $bid = acquire($dbh, 'frozen', 'next', '1 hour');
	ok(is_leader($bid), "$case: and the next leads");
	$impatient->disconnect;
	$worker->{end}->();
}

#
# A member of the owner ends the session of another member, of a superuser too; it
# needs no right to signal processes.  Whoever is no member ends nothing.
#
{
	$dbh->do($_) for 'CREATE ROLE owner', 'CREATE ROLE member LOGIN IN ROLE owner',
	  'CREATE ROLE stranger LOGIN IN ROLE pg_signal_backend, pg_read_all_stats',
	  "SELECT leader_configure('owned', owner => 'owner')";
	my $leader = connect_to($node);
	my $member = connect_to($node, undef, user => 'member');
	my $stranger = connect_to($node, undef, user => 'stranger');
	my $old = acquire_session($leader, 'owned', 'superuser')->{epoch};

	is(sqlstate($stranger, "SELECT leader_depose('owned')"), '42501', 'a stranger may not');
	is(value($leader, 'SELECT 1'), 1, 'and has ended nothing');
	cmp_ok(depose('owned', $member), '>', $old, 'a member may');
	ok(is_gone(backend_pid($leader)), 'and has ended the session that led');
	$_->disconnect for $member, $stranger;
}

#
# While others wait, only the one who leads is deposed: whoever is next comes after
# it, of either kind, and is not ended in the same breath.
#
foreach my $kind ('lease', 'session')
{
	my ($granted, $after, $deposed, @epochs) = (0, 0, 0);
	my $rounds = 5;

	foreach my $round (1 .. $rounds)
	{
		my $leader = connect_to($node);
		my @waiters = map { connect_to($node) } 1 .. 2;
		my $old = acquire_session($leader, "waited for by a $kind", 'leader')->{epoch};
		my $call = $kind eq 'session' ? 'leader_acquire_session(?, ?, NULL, ?)'
		  : "leader_acquire(?, ?, '1 hour', ?)";

		start_query($waiters[$_], "SELECT is_leader, epoch FROM $call",
			"waited for by a $kind", "waiter $_", '10 s')
		  for 0 .. $#waiters;
		wait_for_state($dbh, backend_pid($_), qr/Extension/) for @waiters;
		my $drawn = depose("waited for by a $kind");
		poll_until(sub { grep { query_done($_) } @waiters }, 'a waiter');
		@waiters = reverse @waiters if query_done($waiters[1]);
		my ($state, $rows) = finish_query($waiters[0]);
		my $next = ($rows // [])->[0] // {};

		$granted++ if $next->{is_leader};
		$after++ if ($next->{epoch} // 0) > $drawn;
		$deposed++ if (reason($old) // '') eq 'deposed';
		is(status("waited for by a $kind")->{epoch}, $next->{epoch},
			"next a $kind: P4: who was granted leads, round $round");
		is(value($waiters[0], 'SELECT leader_check(?, ?)', "waited for by a $kind", $next->{epoch}),
			1, "next a $kind: P4: and may go on, round $round");
		push @epochs, $old, $drawn, $next->{epoch} // 0;

		# The other one is served after that.
		depose("waited for by a $kind");
		($state, $rows) = finish_query($waiters[1]);
		ok(@{ $rows // [] } && is_leader($rows->[0]), "next a $kind: then the other one leads, round $round");
		push @epochs, @{ $rows // [] } ? $rows->[0]->{epoch} : 0;
		depose("waited for by a $kind");
		eval { $_->disconnect } for @waiters, $leader;
	}
	is($granted, $rounds, "next a $kind: a waiter leads each time");
	is($after, $rounds, "next a $kind: P1: with an epoch above the one drawn");
	is($deposed, $rounds, "next a $kind: whose turn it was is said to be deposed");
	is_deeply([ sort { $a <=> $b } @epochs ], \@epochs, "next a $kind: P1: epochs grow all the way");
}

# Undone with a savepoint, but through a cursor that goes on.  The session has ended
# all the same; its term's lock must not stay with the cursor.
{
	my $leader = connect_to($node);
	my $steering = connect_to($node);

	acquire_session($leader, 'by a cursor', 'leader');
	$steering->do('BEGIN');
	$steering->do(q{DECLARE c CURSOR FOR SELECT leader_depose('by a cursor')});
	$steering->do('SAVEPOINT s');
	ok(value($steering, 'FETCH c'), 'deposed by a cursor');
	$steering->do('ROLLBACK TO s');
	is( value($steering, q{SELECT count(*) FROM pg_locks
			WHERE pid = pg_backend_pid() AND locktype IN ('advisory', 'object')}),
		0, 'no lock is kept when the savepoint is rolled back');
	ok(is_leader(acquire($dbh, 'by a cursor', 'next', '1 hour')),
		'and the next one leads, while the cursor is open');
	$steering->do('ROLLBACK');
	eval { $leader->disconnect };
}

check_tables($node, 'at the end');
done_testing();
