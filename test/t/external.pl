# External elections on a server of their own: what becomes of the mark, the
# highest token that was committed, when the server crashes, restarts or fails
# over, and how raises meet other commits.
#
# Guards P7 for them: a raise that was acknowledged is lost by no crash, whatever
# synchronous_commit says.  P2: whoever commits with a lower token does so before
# the raise, also in the order of the log, though all raise and write at once; a
# raise waits for commits under way, and gives way where its transaction holds
# what another one waits for.  And that raises are notified, not prepared, and
# refused on a standby.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use PostgreSQL::Test::Utils;
use Test::More;

sub present
{
	my ($dbh, $election, $token) = @_;
	return sqlstate($dbh, 'SELECT leader_fence(?, ?)', $election, $token);
}

sub make_external
{
	my ($dbh, $election, $token) = @_;

	value($dbh, 'SELECT leader_configure(?, external => true)', $election);
	value($dbh, 'SELECT leader_fence(?, ?)', $election, $token) if defined $token;
	return;
}

sub mark
{
	my ($dbh, $election) = @_;
	return value($dbh,
		"SELECT epoch FROM leader_status WHERE election = ? AND kind = 'external'", $election);
}

#
# Crash and restart.  Without replication there is nobody else who writes to the
# log, and the process that would do so in the background is frozen.
#

my $node = new_node('single', conf => "wal_level = minimal\nmax_wal_senders = 0\nmax_prepared_transactions = 2");

my $raise = "SELECT leader_fence('%s', 100)";
my %raises = (
	'off in the session' => [ 'SET synchronous_commit = off', $raise ],
	'off after it was presented' =>
	  [ 'BEGIN', $raise, 'SET LOCAL synchronous_commit = off', 'COMMIT' ],
	'off in a function' =>
	  ["SELECT leader_fence('%s', 100), set_config('synchronous_commit', 'off', true)"],
	'off in a subtransaction' => [
		'SET synchronous_commit = off', 'BEGIN', 'SAVEPOINT s', $raise,
		'RELEASE s', 'COMMIT'
	],
	'by the setting' => [
		'SET synchronous_commit = off',
		'SET leader_election.fence = \'"%s"=100\'',
		"INSERT INTO \"%s\" VALUES (NULL)"
	],
	'by the epoch column' =>
	  [ 'SET synchronous_commit = off', "INSERT INTO \"%s\" VALUES (100)" ]);

{
	my $setup = connect_to($node);
	foreach my $case (keys %raises)
	{
		make_external($setup, $case, 10);
		next if $case !~ /^by/;
		$setup->do("CREATE TABLE \"$case\" (fence_epoch bigint)");
		value($setup, 'SELECT leader_protect(?::regclass, ?, ?)', "\"$case\"", $case, 'fence_epoch');
	}
	make_external($setup, 'not committed', 10);

	my $monitor = connect_to($node);
	my $walwriter = value($monitor, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'");
	freeze($walwriter);

	# Each in a session that has done nothing before.
	foreach my $case (sort keys %raises)
	{
		my $dbh = connect_to($node);

		foreach my $sql (@{ $raises{$case} })
		{
			$sql =~ s/%s/$case/;
			$sql =~ /^SELECT/ ? value($dbh, $sql) : $dbh->do($sql);
		}
		is(wal_unflushed($monitor), 0, "P7: $case: all is written when the call returns");
		is(value($dbh, 'SHOW synchronous_commit'), 'off', "$case: the setting is the session's own again")
		  if $raises{$case}->[0] =~ /^SET/;
	}

	my $open = connect_to($node);
	$open->do('BEGIN');
	value($open, "SELECT leader_fence('not committed', 100)");

	crash($node, $walwriter);
	$node->start;
	my $dbh = connect_to($node);
	is(mark($dbh, $_), 100, "P7: $_: the mark is there after the crash") for sort keys %raises;
	is(mark($dbh, 'not committed'), 10, 'a raise that was not committed has left nothing');
}

my @disruptions = (
	[ 'clean restart', sub { $node->restart } ],
	[ 'immediate shutdown', sub { $node->stop('immediate'); $node->start } ]);
foreach my $disruption (@disruptions)
{
	my ($case, $disrupt) = @$disruption;
	my $dbh = connect_to($node);

	make_external($dbh, $case, 50);
	$disrupt->();
	$dbh = connect_to($node);
	ok(value($dbh, 'SELECT leader_check(?, 50)', $case), "$case: the token is current");
	ok(!value($dbh, 'SELECT leader_check(?, 49)', $case), "$case: a lower one is not");
	is(present($dbh, $case, 49), 'LE001', "$case: P2: and is stale");
	is(sqlstate($dbh, q{SELECT leader_acquire(?, 'leader')}, $case), '55000', "$case: it is external");
	is(present($dbh, $case, 50), '00000', "$case: the token passes");
	is(present($dbh, $case, 51), '00000', "$case: a higher one raises the mark");
	is(mark($dbh, $case), 51, "$case: to what it is");

	# A session that knows nothing yet, as the first that asks.
	is(present(connect_to($node), $case, 52), '00000', "$case: so it does in a new session");
	is(present(connect_to($node), $case, 51), 'LE001', "$case: P2: and another one is stale");
	check_tables($node, $case);
}

#
# PREPARE TRANSACTION, and notifications
#

my $dbh = connect_to($node);
my $other = connect_to($node);

{
	make_external($dbh, 'prepared', 10);
	foreach my $token (10, 11)
	{
		$dbh->do('BEGIN');
		value($dbh, "SELECT leader_fence('prepared', $token)");
		is(sqlstate($dbh, "PREPARE TRANSACTION 'external'"), '0A000', "token $token: it cannot be prepared");
		$dbh->do('ROLLBACK');
	}
	is(value($dbh, 'SELECT count(*) FROM pg_prepared_xacts'), 0, 'nothing was prepared');
	is(mark($dbh, 'prepared'), 10, 'nor raised');
}

{
	my $listener = connect_to($node);
	my @heard;
	my $marks = 0;

	# Arrives after all that was sent before.
	my $hear = sub {
		my $end = 'mark ' . ++$marks;

		@heard = ();
		value($other, "SELECT pg_notify('leader_election', ?)", $end);
		poll_until(
			sub {
				while (my $notify = $listener->pg_notifies)
				{
					return 1 if $notify->[2] eq $end;
					push @heard, $notify->[2];
				}
				return 0;
			},
			'the mark');
		return [@heard];
	};
	my $begins = ['{"election": "notified", "event": "begin"}'];

	$listener->do('LISTEN leader_election');
	make_external($dbh, 'notified');
	is_deeply($hear->(), [], 'an external election without a token: nobody is told of a term');
	present($dbh, 'notified', 10);
	is_deeply($hear->(), $begins, 'its first token is notified');
	present($dbh, 'notified', 11);
	is_deeply($hear->(), $begins, 'and a higher one');
	present($dbh, 'notified', 11);
	present($dbh, 'notified', 10);
	is_deeply($hear->(), [], 'the same is not, nor a stale one');
	$dbh->do('BEGIN');
	present($dbh, 'notified', 12);
	is_deeply($hear->(), [], 'nor one that is not committed');
	$dbh->do('ROLLBACK');
	is_deeply($hear->(), [], 'nor one that is rolled back');
	$dbh->do('SET leader_election.notify = off');
	present($dbh, 'notified', 13);
	is_deeply($hear->(), [], 'nor any when notifications are off');
	$dbh->do('RESET leader_election.notify');

	# What ends a lease by becoming external
	acquire($dbh, 'late', 'leader', '100 ms');
	poll_until(
		sub { value($dbh, "SELECT state FROM leader_status WHERE election = 'late'") eq 'expired' },
		'a lease to run out');
	$hear->();
	make_external($dbh, 'late');
	is_deeply($hear->(), ['{"election": "late", "event": "end"}'], 'a lease that has run out ends when its election becomes external');
}

#
# How a raise meets other commits
#

$dbh->do('CREATE TABLE counters (id int PRIMARY KEY, value int)');
$dbh->do('INSERT INTO counters VALUES (1, 0)');
$dbh->do('CREATE TABLE written (token bigint)');

# A commit with the mark pauses after its validation, as it must empty a temporary
# table that somebody else has locked.  The raise is refused as long as it waits,
# and passes once it is through.
{
	my $old = connect_to($node);
	my $pauser = connect_to($node);
	my $raiser = connect_to($node);
	my ($refused, $passed_early) = (0, 0);

	make_external($dbh, 'paused', 10);
	$old->do('CREATE TEMPORARY TABLE pause (i int) ON COMMIT DELETE ROWS');
	$old->do('BEGIN');
	present($old, 'paused', 10);
	$old->do('INSERT INTO written VALUES (10)');
	value($old, 'SELECT count(*) FROM pause');
	$pauser->do('BEGIN');
	$pauser->do(value($pauser,
		q{SELECT format('LOCK TABLE %s IN ACCESS SHARE MODE', oid::regclass)
			FROM pg_class WHERE relname = 'pause' AND relpersistence = 't'}));
	start_query($old, 'COMMIT');
	wait_for_state($dbh, backend_pid($old), qr/Lock relation/);

	# The bound of the wait lies below deadlock_timeout, whichever that is, and
	# the session's own is kept if it is shorter.
	foreach my $setting ("deadlock_timeout = '50 ms'", "deadlock_timeout = '1 min'", "lock_timeout = '20 ms'")
	{
		$raiser->do("SET $setting");
		is(present($raiser, 'paused', 20), '55P03', "P2: $setting: no raise while a commit with the mark is under way");
		is(value($raiser, "SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND pid = pg_backend_pid()"),
			0, "$setting: it keeps no lock");
		$raiser->do('RESET deadlock_timeout');
	}
	is(value($raiser, 'SHOW lock_timeout'), '20ms', 'the setting of the session is as it was');
	$raiser->do('RESET lock_timeout');

	# It waits, is cancelled, and is ended.
	foreach my $end ([ 'pg_cancel_backend', '57014' ], [ 'pg_terminate_backend', '57P01' ])
	{
		my ($function, $state) = @$end;

		$raiser->do(q{SET deadlock_timeout = '10 min'});
		my $got = poll_until(
			sub {
				start_query($raiser, "SELECT leader_fence('paused', 20)");
				poll_until(
					sub {
						query_done($raiser) ||
						  value($dbh, q{SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND NOT granted AND pid = ?},
							backend_pid($raiser));
					},
					'the raiser to wait');
				value($dbh, "SELECT $function(?)", backend_pid($raiser));
				my $seen = finish_query($raiser);
				# It may have been through before.
				$seen ne '55P03' ? $seen : undef;
			},
			'a raiser that waits');
		is($got, $state, "$function: the wait of a raise ends");
		is(mark($dbh, 'paused'), 10, "$function: and nothing is raised");
		$raiser = connect_to($node) if $state eq '57P01';
	}

	# Whenever it passes, what the other one wrote is there.
	$raiser->do('CREATE TABLE IF NOT EXISTS seen (rows int)');
	my $resumed = 0;
	my $state = poll_until(
		sub {
			start_query($raiser, "SELECT leader_fence('paused', 20)");
			$pauser->do('COMMIT') if !$resumed++;
			my $state = finish_query($raiser);
			$state ne '55P03' ? $state : undef;
		},
		'the raise');
	is($state, '00000', 'P2: once the commit is through the raise passes');
	is(value($raiser, 'SELECT count(*) FROM written WHERE token = 10'), 1, 'P2: and sees what that wrote');
	is(finish_query($old), '00000', 'P2: which was committed');
	is(mark($dbh, 'paused'), 20, 'the mark is raised');
	$raiser->do('DROP TABLE seen');
}

# A cycle: the next leader of a lease has acquired it in a transaction that is open,
# and waits for a row of the raiser, whose commit depends on that lease as well.
# The raiser gives way at once, alone and with very many elections, and whether
# the deadlock detector looks soon or late.
value($dbh, q{SELECT count(leader_configure('many ' || n, external => true)) FROM generate_series(1, 70) AS n});
value($dbh, q{SELECT count(leader_fence('many ' || n, 1)) FROM generate_series(?::int, ? + 34) AS n}, $_, $_) for 1, 36;
foreach my $many (0, 1)
{
	foreach my $deadlock_timeout ('50 ms', '1 min')
	{
		my $case = ($many ? 'cycle, very many elections' : 'cycle') . ", deadlock_timeout $deadlock_timeout";
		my $raiser = connect_to($node);
		my $new = connect_to($node);
		my $term = acquire($raiser, $case, 'old', '100 ms');

		make_external($dbh, "external $case", 10);
		$_->do("SET deadlock_timeout = '$deadlock_timeout'") for $raiser, $new;
		$raiser->do("SET leader_election.commit_timeout = '10 min'");
		$raiser->do('BEGIN');
		present($raiser, $case, $term->{epoch});
		present($raiser, "external $case", 20);
		if ($many)
		{
			is(value($raiser, q{SELECT count(leader_fence(election, epoch)) FROM leader_status WHERE election LIKE 'many %'}),
				70, "$case: it depends on very many elections");
		}
		$raiser->do('UPDATE counters SET value = 1 WHERE id = 1');
		$new->do('BEGIN');
		poll_until(sub { is_leader(acquire($new, $case, 'new', '1 hour')) }, 'the takeover');
		start_query($new, 'UPDATE counters SET value = 2 WHERE id = 1');
		wait_for_state($dbh, backend_pid($new), qr/Lock transactionid/);

		start_query($raiser, 'COMMIT');
		is(finish_query($raiser), '55P03', "$case: the raiser gives way at once");
		is(finish_query($new), '00000', "$case: the new leader gets the row");
		is(sqlstate($new, 'COMMIT'), '00000', "$case: and commits");
		is(value($dbh, 'SELECT value FROM counters WHERE id = 1'), 2, "$case: its value stands");
		is(mark($dbh, "external $case"), 10, "$case: nothing is raised");
		is(present($raiser, "external $case", 20), '00000', "$case: it can be raised afterwards");
	}
}

# All at once: tokens that rise and fall, and rows that carry them.
{
	my $tokens = 60;
	my @workers = map { spawn_worker($node) } 1 .. 6;
	my (%states, $highest);
	my $log_start = value($dbh, 'SELECT pg_current_wal_insert_lsn()');

	make_external($dbh, 'load', 1);
	$dbh->do('CREATE TABLE load (token bigint)');
	value($dbh, "SELECT leader_protect('load', 'load', 'token')");
	$highest = 1;
	srand 1;
	foreach my $round (1 .. $tokens)
	{
		my @token = map { $round + int(rand 4) } @workers;

		$workers[$_]->{ask}->("INSERT INTO load VALUES ($token[$_]), ($token[$_])") for 0 .. $#workers;
		foreach my $n (0 .. $#workers)
		{
			my $state = $workers[$n]->{answer}->();

			$states{$state}++;
			$highest = $token[$n] if $state eq '00000' && $token[$n] > $highest;
		}
	}

	# The last one first, as each has a share in what ends those before it.
	$_->{end}->() for reverse @workers;
	is_deeply([ grep { !/^(?:00000|LE001|55P03)$/ } keys %states ], [], 'load: nothing else goes wrong');
	cmp_ok($states{'00000'} // 0, '>=', $tokens, 'load: tokens pass');
	cmp_ok($states{LE001} // 0, '>', 0, 'load: others are stale');
	is(mark($dbh, 'load'), $highest, 'load: the mark is the highest that was committed');
	is(value($dbh, 'SELECT max(token) FROM load'), $highest, 'load: so is the highest in a row');

	# The order of commits is that of the log.
	my %token_of = map { $_->[0] => $_->[1] } @{
		$dbh->selectall_arrayref('SELECT DISTINCT xmin::text, token FROM load') };
	my ($dump) = run_command(
		[
			'pg_waldump', '-p', $node->data_dir . '/pg_wal', '-s', $log_start,
			'-e', value($dbh, 'SELECT pg_current_wal_flush_lsn()'), '-r', 'Transaction'
		]);
	my ($last, $commits, $late) = (0, 0, 0);
	while ($dump =~ /tx:\s*(\d+),.*desc: COMMIT/g)
	{
		my $of = $token_of{$1} // next;

		$commits++;
		$late++ if $of < $last;
		$last = $of if $of > $last;
	}
	is($commits, scalar keys %token_of, 'load: all commits are found in the log');
	is($late, 0, 'P2: in the order of the log no token follows a higher one');
	check_tables($node, 'load');
}
$node->stop;

#
# Synchronous replication, and a standby
#

my $primary = new_node('primary', streaming => 1);
$dbh = connect_to($primary);
make_external($dbh, 'followed', 10);
$primary->backup('backup');
my $standby = new_standby($primary, 'standby', 'backup');
$standby->start;
my $receiver = wal_receiver($standby);
$primary->append_conf('postgresql.conf', "synchronous_standby_names = 'standby'");
$primary->reload;
poll_until(
	sub { (value($dbh, 'SELECT sync_state FROM pg_stat_replication') // '') eq 'sync' },
	'the standby to be synchronous');

{
	my $there = connect_to($standby);
	my $seen;

	is(present($dbh, 'followed', 11), '00000', 'raised with a standby');
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('flush'));
	$seen = row($there, "SELECT * FROM leader_status WHERE election = 'followed'");
	is($seen->{epoch}, 11, 'standby: leader_status: the mark as replicated');
	is($seen->{kind}, 'external', 'standby: leader_status: the kind');
	is($seen->{state}, 'held', 'standby: leader_status: the state');
	is($seen->{leader}, undef, 'standby: leader_status: nobody is named');
	foreach my $call (
		"leader_fence('followed', 11)", "leader_fence('followed', 12)",
		"leader_check('followed', 11)", "leader_configure('followed', external => true)",
		"leader_configure('new', external => true)")
	{
		is(sqlstate($there, "SELECT $call"), '25006', "standby: $call is refused");
		like($there->errstr, qr/^HINT: .*primary/m, "standby: $call: the hint says where to go");
	}
}

# Whatever synchronous_commit says, a raise is on the standby when it is
# acknowledged; a wait that is cut short shows no success.
foreach my $setting ('off', 'local')
{
	my $raiser = connect_to($primary);
	my $token = $setting eq 'off' ? 20 : 30;

	freeze($receiver);
	$raiser->do("SET synchronous_commit = $setting");
	start_query($raiser, "SELECT leader_fence('followed', $token)");
	wait_for_state($dbh, backend_pid($raiser), qr/SyncRep/);
	ok(!query_done($raiser), "P7: synchronous_commit = $setting: a raise waits for the standby");
	thaw($receiver);
	is(finish_query($raiser), '00000', "P7: synchronous_commit = $setting: and is acknowledged with it");

	freeze($receiver);
	start_query($raiser, 'SELECT leader_fence(?, ?)', 'followed', $token + 5);
	wait_for_state($dbh, backend_pid($raiser), qr/SyncRep/);
	value($dbh, 'SELECT pg_cancel_backend(?)', backend_pid($raiser));
	my ($state, $rows) = finish_query($raiser);
	isnt($state, '00000', "P7: synchronous_commit = $setting: a cancelled wait shows no success");
	isnt(sqlstate($raiser, 'SELECT 1'), '00000', "P7: synchronous_commit = $setting: the connection is lost");
	thaw($receiver);
}

# What was acknowledged is there after a failover.
is(present($dbh, 'followed', 40), '00000', 'raised once more');
my $promoted = connect_to($standby);
$primary->stop('immediate');
$standby->promote;
is(mark($promoted, 'followed'), 40, 'P7: promotion: the mark is the one that was acknowledged');
is(present($promoted, 'followed', 39), 'LE001', 'P2: promotion: a lower token is stale');
ok(value($promoted, "SELECT leader_check('followed', 40)"), 'promotion: the token is current');
is(present($promoted, 'followed', 41), '00000', 'promotion: a higher one raises the mark');
is(sqlstate($promoted, "SELECT leader_acquire('followed', 'leader')"), '55000', 'promotion: it is external');

done_testing();
