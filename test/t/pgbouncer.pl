# Through a pooler.  Leases and SET LOCAL need no connection of their own, so
# they work in transaction pooling, where every transaction may meet another
# server connection.  Session leadership needs one: it works in session pooling,
# and through a transaction pooler, where it is wrong, it does the safe thing:
# it ends with server_reset_query, or without that stays with the server
# connection and is refused to every other holder.
#
# Guards P1 and P2 where the session of a client is not the server's.  The
# pooler is pgbouncer, started here with a configuration of its own.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Where Debian puts it no user's PATH may lead.
my ($program) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin', '/sbin';
plan skip_all => 'pgbouncer is not installed' unless $program;

my $node = new_node('main');
my $dbh = connect_to($node);
my $user = value($dbh, 'SELECT current_user');
my @poolers;

$dbh->do('CREATE TABLE written (what text, epoch bigint)');
$dbh->do('CREATE TABLE protected (what text)');
value($dbh, "SELECT leader_protect('protected', 'fenced')");

# A pooler, which looks like a node to those who connect.  Its databases: "one"
# and "several" have so many server connections.
{

	package Pooler;

	sub host { return $_[0]->{host}; }
	sub port { return $_[0]->{port}; }
}

sub start_pooler
{
	my ($name, %settings) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir_short();
	my $pooler = bless {
		host => $dir,
		port => PostgreSQL::Test::Cluster::get_free_port(),
		log => "$PostgreSQL::Test::Utils::log_path/pgbouncer_$name.log"
	}, 'Pooler';
	my $ini = "$dir/pgbouncer.ini";
	my $server = sprintf 'host=%s port=%d dbname=postgres user=%s',
	  $node->host, $node->port, $user;

	%settings = (
		listen_port => $pooler->port,
		unix_socket_dir => $dir,
		auth_type => 'any',
		ignore_startup_parameters => 'extra_float_digits',
		%settings);
	PostgreSQL::Test::Utils::append_to_file($ini,
		"[databases]\none = $server pool_size=1\nseveral = $server pool_size=5\n[pgbouncer]\n"
		  . join('', map { "$_ = $settings{$_}\n" } sort keys %settings));

	my $pid = fork() // die "fork: $!";
	if ($pid == 0)
	{
		open STDIN, '<', '/dev/null';
		open STDOUT, '>', $pooler->{log};
		open STDERR, '>&', \*STDOUT;
		{ exec { $program } $program, $ini };
		POSIX::_exit(1);
	}
	$pooler->{pid} = $pid;
	push @poolers, $pooler;
	poll_until(
		sub {
			die "$program has ended, see $pooler->{log}" if waitpid($pid, POSIX::WNOHANG()) == $pid;
			return eval { connect_to($pooler, 'one') };
		},
		'the pooler');
	return $pooler;
}

sub stop_pooler
{
	my ($pooler) = @_;

	@poolers = grep { $_ != $pooler } @poolers;
	kill 'KILL', $pooler->{pid};
	waitpid $pooler->{pid}, 0;
	return;
}

END
{
	my $status = $?;
	stop_pooler($_) for @poolers;
	$? = $status;
}

sub status
{
	my ($election) = @_;
	return row($dbh, 'SELECT * FROM leader_status WHERE election = ?', $election);
}

sub server_of { return value($_[0], 'SELECT pg_backend_pid()'); }

# The answer, and from which server connection it came
sub acquire_session
{
	my ($session, $election, $holder, $ttl, $wait) = @_;
	return row($session,
		'SELECT is_leader, epoch, leader, pg_backend_pid() AS server
		   FROM leader_acquire_session(?, ?, ?::interval, ?::interval)',
		$election, $holder, $ttl, $wait // '0');
}

sub check
{
	my ($session, $election, $epoch) = @_;
	return value($session, 'SELECT leader_check(?, ?)', $election, $epoch) ? 1 : 0;
}

# Something for a transaction to do on another server connection than before:
# transactions of others keep those that were used.
my @keepers;

sub elsewhere
{
	my ($pooler, $session) = @_;
	my $server = server_of($session);
	my $keeper = connect_to($pooler, 'several');

	# An idle connection is handed out again last in, first out.
	poll_until(
		sub {
			$keeper->do('BEGIN');
			return 1 if server_of($keeper) == $server;
			$keeper->do('COMMIT');
			return 0;
		},
		'the server connection that was used last');
	push @keepers, $keeper;
	return $server;
}

sub let_go
{
	$_->do('COMMIT') for @keepers;
	$_->disconnect for @keepers;
	@keepers = ();
	return;
}

#
# Transaction pooling: leases and SET LOCAL
#
my $pooler = start_pooler('transaction', pool_mode => 'transaction');
{
	my $leader = connect_to($pooler, 'several');
	my $rival = connect_to($pooler, 'several');
	my %servers;
	my $term = row($leader,
		"SELECT is_leader, epoch, pg_backend_pid() AS server FROM leader_acquire('fenced', 'leader', '1 hour')");

	ok(is_leader($term), 'transaction pooling: a lease is acquired');
	$servers{ $term->{server} } = 1;
	elsewhere($pooler, $leader);

	my $renewed = row($leader,
		'SELECT is_leader, epoch, pg_backend_pid() AS server FROM leader_renew(?, ?)',
		'fenced', $term->{epoch});
	ok(is_leader($renewed), 'renewed');
	ok(!$servers{ $renewed->{server} }++, 'on another server connection');
	elsewhere($pooler, $leader);

	$leader->do('BEGIN');
	$leader->do("SET LOCAL leader_election.fence = 'fenced=$term->{epoch}'");
	my $server = server_of($leader);
	is(sqlstate($leader, "INSERT INTO protected VALUES ('set')"),
		'00000', 'a write with a token by SET LOCAL');
	is(sqlstate($leader, 'COMMIT'), '00000', 'commits');
	ok(!$servers{$server}++, 'on a third server connection');

	# Another client gets that connection, but not its token.
	my $other = connect_to($pooler, 'several');
	poll_until(
		sub {
			$other->do('BEGIN');
			return 1 if server_of($other) == $server;
			$other->do('COMMIT');
			return 0;
		},
		'the server connection of the write');
	is(sqlstate($other, "INSERT INTO protected VALUES ('without')"),
		'LE002', 'P2: the next client on that connection has no token');
	$other->do('ROLLBACK');
	elsewhere($pooler, $leader);

	$leader->do('BEGIN');
	value($leader, 'SELECT leader_fence(?, ?)', 'fenced', $term->{epoch});
	$server = server_of($leader);
	is(sqlstate($leader, "INSERT INTO protected VALUES ('fence')"),
		'00000', 'a write with a token by leader_fence');
	is(sqlstate($leader, 'COMMIT'), '00000', 'commits');
	ok(!$servers{$server}++, 'on a fourth server connection');
	is(check($leader, 'fenced', $term->{epoch}), 1, 'checked');
	ok(!is_leader(acquire($rival, 'fenced', 'rival', '1 hour')), 'P4: a rival loses');
	is(acquire($leader, 'fenced', 'leader', '1 hour')->{epoch},
		$term->{epoch}, 'the holder renews by asking again');
	let_go();

	# A paused writer: its transaction keeps its server connection.
	my $paused = connect_to($pooler, 'several');
	$paused->do('BEGIN');
	$paused->do("SET LOCAL leader_election.fence = 'fenced=$term->{epoch}'");
	is(sqlstate($paused, "INSERT INTO protected VALUES ('paused')"),
		'00000', 'a write, and a pause');
	ok(value($leader, 'SELECT leader_release(?, ?)', 'fenced', $term->{epoch}), 'released');
	my $next = acquire($rival, 'fenced', 'rival', '1 hour');
	ok(is_leader($next), 'P3: the next one does not wait for the pause');
	is(sqlstate($paused, 'COMMIT'), 'LE001', 'P2: the paused write does not commit');

	$leader->do('BEGIN');
	$leader->do("SET LOCAL leader_election.fence = 'fenced=$term->{epoch}'");
	is(sqlstate($leader, "INSERT INTO protected VALUES ('stale')"),
		'LE001', 'P2: nor is there a new write of the old term');
	$leader->do('ROLLBACK');
	$rival->do('BEGIN');
	$rival->do("SET LOCAL leader_election.fence = 'fenced=$next->{epoch}'");
	is(sqlstate($rival, "INSERT INTO protected VALUES ('next')"), '00000', 'the next leader writes');
	is(sqlstate($rival, 'COMMIT'), '00000', 'and commits');
	is_deeply(
		column($dbh, 'SELECT what FROM protected ORDER BY what COLLATE "C"'),
		[ 'fence', 'next', 'set' ],
		'P2: what is there was written by current leaders');

	# Who waits, and goes away behind the pooler
	my $worker = spawn_worker($pooler, 'several');
	my $event = $node->pg_version >= 17 ? 'LeaderElectionAcquire' : 'Extension';
	$worker->{ask}->("SELECT leader_acquire('fenced', 'dead', '1 hour', '10 s')");
	my $waiting = poll_until(
		sub {
			value($dbh, "SELECT pid FROM pg_stat_activity
				WHERE state = 'active' AND wait_event = ? AND query LIKE '%dead%' AND pid <> pg_backend_pid()",
				$event);
		},
		'the waiting call');
	kill 'KILL', $worker->{pid};
	waitpid $worker->{pid}, 0;
	poll_until(
		sub { !value($dbh, 'SELECT count(*) FROM pg_stat_activity WHERE pid = ?', $waiting) },
		'the end of the waiting call');
	ok(value($rival, 'SELECT leader_release(?, ?)', 'fenced', $next->{epoch}), 'released');
	is(status('fenced')->{state}, 'free', 'who went away while waiting never leads');
	$worker->{end}->();
}

#
# Transaction pooling: session leadership, with nothing that would end it
#
{
	my $leader = connect_to($pooler, 'one');
	my $rival = connect_to($pooler, 'one');
	my $term = acquire_session($leader, 'pooled', 'leader');

	ok(is_leader($term), 'no reset: session leadership stays with the server connection');
	is(status('pooled')->{pid}, $term->{server}, 'as the view says');
	my $bid = acquire_session($rival, 'pooled', 'rival');
	is($bid->{server}, $term->{server}, 'another client on the same connection');
	ok(!is_leader($bid), 'P1: with another name is refused');
	is($bid->{epoch}, undef, 'and learns no epoch');
	is($bid->{leader}, 'leader', 'but who leads');
	ok(!is_leader(acquire($rival, 'pooled', 'rival', '1 hour')), 'so is its bid for a lease');
	ok(!is_leader(acquire($rival, 'pooled', 'leader', '1 hour')),
		'also with the same name, as the kind is another');
	ok(!is_leader(acquire_session($rival, 'pooled', 'rival', undef, '200 ms')),
		'and one that waits');
	is(acquire_session($leader, 'pooled', 'leader')->{epoch},
		$term->{epoch}, 'the leader asks again: the same epoch');

	# The same names on other server connections
	my $away = connect_to($pooler, 'several');
	foreach my $holder ('leader', 'rival')
	{
		$bid = acquire_session($away, 'pooled', $holder);
		isnt($bid->{server}, $term->{server}, 'a client on another connection');
		ok(!is_leader($bid), "P1: is refused as $holder");
	}
	is(sqlstate($away, 'SELECT leader_release(?, ?)', 'pooled', $term->{epoch}),
		'55000', 'and cannot release it there');
	ok(!is_leader(renew($away, 'pooled', $term->{epoch})), 'nor renew it');

	$leader->disconnect;
	is(status('pooled')->{leader}, 'leader',
		'the client has gone, and the server connection leads on');
	ok(!is_leader(acquire_session($rival, 'pooled', 'rival')),
		'P1: still nobody else can be led to believe that it leads');
	ok(!is_leader(acquire($dbh, 'pooled', 'direct', '1 hour')), 'P4: nor without the pooler');

	# With a TTL that ends by itself.
	my $since = now();
	my $timed = acquire_session($rival, 'pooled, with a TTL', 'gone', '500 ms');
	ok(is_leader($timed), 'a term with a TTL');
	$rival->disconnect;
	my $next = acquire($dbh, 'pooled, with a TTL', 'next', '1 hour', '10 s');
	ok(is_leader($next), 'ends when that runs out');
	cmp_ok(elapsed($since), '>=', 0.5, 'P4: and not before');

	# The pooler dies, and with it its server connections.
	stop_pooler($pooler);
	$bid = acquire($dbh, 'pooled', 'next', '1 hour', '10 s');
	ok(is_leader($bid), 'the end of the pooler ends the term');
	cmp_ok($bid->{epoch}, '>', $term->{epoch}, 'P1: the next epoch is higher');
	is(sqlstate($dbh, 'SELECT leader_fence(?, ?)', 'pooled', $term->{epoch}),
		'LE001', 'P2: the old one is refused');
}

#
# Transaction pooling, with a reset after each transaction
#
$pooler = start_pooler('reset',
	pool_mode => 'transaction',
	server_reset_query => 'DISCARD ALL',
	server_reset_query_always => 1);
{
	my $leader = connect_to($pooler, 'one');
	my $rival = connect_to($pooler, 'one');

	foreach my $ttl (undef, '1 hour')
	{
		my $election = $ttl ? 'reset, with a TTL' : 'reset';
		my $term = acquire_session($leader, $election, 'leader', $ttl);
		ok(is_leader($term), "$election: granted");

		# The connection is handed to the next client after its reset only.
		is(server_of($rival), $term->{server}, "$election: the connection is used again");
		isnt(status($election)->{leader} // '', 'leader',
			"$election: the term has ended with its transaction");
		is(check($leader, $election, $term->{epoch}), 0, "$election: its client can know");
		ok(!is_leader(renew($leader, $election, $term->{epoch})), "$election: and cannot renew it");
		my $next = acquire_session($rival, $election, 'rival', $ttl);
		is($next->{server}, $term->{server}, "$election: another client");
		ok(is_leader($next), "$election: leads");
		cmp_ok($next->{epoch}, '>', $term->{epoch}, "$election: P1: by a higher epoch");
		is(sqlstate($leader, 'SELECT leader_fence(?, ?)', $election, $term->{epoch}),
			'LE001', "$election: P2: the old one is refused");
		is( value($dbh, 'SELECT end_reason FROM leader_term WHERE election = ? AND epoch = ?',
				$election, $term->{epoch}),
			'session_ended', "$election: as the history says");
	}

	# Within one transaction it can be used.
	$leader->do('BEGIN');
	my $term = acquire_session($leader, 'one transaction', 'leader');
	is(check($leader, 'one transaction', $term->{epoch}), 1, 'it lives as long as a transaction');
	value($leader, 'SELECT leader_fence(?, ?)', 'one transaction', $term->{epoch});
	$leader->do("INSERT INTO written VALUES ('one transaction', ?)", undef, $term->{epoch});
	is(sqlstate($leader, 'COMMIT'), '00000', 'and its writes are kept');

	# Leases do not mind.
	my $lease = acquire($leader, 'reset, a lease', 'leader', '1 hour');
	is(server_of($rival), $term->{server}, 'a reset');
	ok(is_leader(renew($leader, 'reset, a lease', $lease->{epoch})), 'does not end a lease');
	stop_pooler($pooler);
}

#
# Session pooling
#
$pooler = start_pooler('session',
	pool_mode => 'session',
	server_reset_query => 'DISCARD ALL');
{
	my %ways = (
		'disconnects' => sub { $_[0]->{end}->() },
		'is killed' => sub { kill 'KILL', $_[0]->{pid}; waitpid $_[0]->{pid}, 0 },
		'is killed in a transaction' => sub {
			$_[0]->{run}->('BEGIN');
			kill 'KILL', $_[0]->{pid};
			waitpid $_[0]->{pid}, 0;
		});

	foreach my $way (sort keys %ways)
	{
		foreach my $ttl (undef, '1 hour')
		{
			my $election = 'session pooling, the client ' . $way . ($ttl ? ', with a TTL' : '');
			my $sql_ttl = $ttl ? "'$ttl'" : 'NULL';
			my $worker = spawn_worker($pooler, 'several');
			my $rival = connect_to($pooler, 'several');

			$worker->{run}->("SELECT leader_acquire_session('$election', 'leader', $sql_ttl)");
			is($worker->{run}->('SELECT 1'), '00000', "$election: another transaction");
			my $term = status($election);
			is($term->{leader}, 'leader', "$election: led across transactions");
			ok(!is_leader(acquire_session($rival, $election, 'rival', $ttl)),
				"$election: P4: another client is refused");
			is( $worker->{run}->("SELECT 1 / leader_check('$election', $term->{epoch})::int"),
				'00000', "$election: it leads on");

			my $since = now();
			$ways{$way}->($worker);
			my $next = acquire_session($rival, $election, 'rival', $ttl, '10 s');
			note(sprintf '%s: next after %.0f ms', $election, 1000 * elapsed($since));
			ok(is_leader($next), "$election: and no longer");
			cmp_ok($next->{epoch}, '>', $term->{epoch}, "$election: P1: next by a higher epoch");
			is( value($dbh, 'SELECT end_reason FROM leader_term WHERE election = ? AND epoch = ?',
					$election, $term->{epoch}),
				'session_ended', "$election: as the history says");
			is( value($dbh, 'SELECT count(*) FROM pg_stat_activity WHERE pid = ?', $term->{pid}),
				1, "$election: the server connection lives on in the pool")
			  if $way ne 'is killed in a transaction';
			$worker->{end}->();
			$rival->disconnect;
		}
	}

	# Who comes next on a connection that has led
	my $leader = connect_to($pooler, 'one');
	my $term = acquire_session($leader, 'handed over', undef);
	$leader->disconnect;
	my $next = connect_to($pooler, 'one');
	is(server_of($next), $term->{server}, 'another client on the same connection');
	is(check($next, 'handed over', $term->{epoch}), 0, 'does not lead');
	my $bid = acquire_session($next, 'handed over', undef);
	ok(is_leader($bid), 'and gets a term when it asks');
	cmp_ok($bid->{epoch}, '>', $term->{epoch}, 'P1: of its own');
}

done_testing();
