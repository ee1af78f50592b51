# leaderctl with several servers: which of them it uses, and what becomes of the
# lease and of the command when the primary is another one, or does not answer.
#
# Guards, as seen by a command:
# - P5: a lease that is long enough goes on over a failover, with the same epoch
#   and the same command; P1: one that is too short does not, its command ends,
#   and the next one has a higher epoch;
# - a connection to what is a standby now is given up for another host;
# - a host that swallows connections keeps neither a candidate nor a leader from
#   the next host;
# - P7: a grant that no standby has confirmed starts no command.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use IO::Socket::INET ();
use IO::Socket::UNIX ();
use LeaderElection;
use Leaderctl;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# What runs while leaderctl leads: it tells of its begin and of its end.
my @command = ('--', 'sh', '-c',
	q{trap 'echo end $LEADER_EPOCH; exit 0' TERM; echo begin $LEADER_EPOCH; while :; do sleep 0.1; done});

sub begins
{
	my ($run) = @_;
	return my @epochs = printed($run) =~ /^begin (\d+)$/mg;
}

sub ends { return my @epochs = printed($_[0]) =~ /^end (\d+)$/mg; }

# Waits for the n-th begin of its command, and answers the epoch.
sub await_begin
{
	my ($run, $n) = @_;
	eval {
		poll_until(sub { begins($run) >= $n || ended($run) }, "begin $n of a command");
	};
	return (begins($run))[ $n - 1 ] if begins($run) >= $n;
	fail("command $n begins");
	die 'leaderctl has said: ' . said($run);
}

sub stop_run
{
	my ($run) = @_;
	kill 'TERM', $run->{pid};
	return await_end($run);
}

# What a standby says that is asked for a term, or to end one.
my $refusal = qr/25006|standby server|read-only|during recovery/;

# Two hosts, as -h and -p have them.
sub hosts
{
	my @nodes = @_;
	return ('-h', join(',', map { $_->host } @nodes), '-p', join(',', map { $_->port } @nodes));
}

sub status
{
	my ($dbh, $election) = @_;
	return row($dbh, 'SELECT * FROM leader_status WHERE election = ?', $election);
}

# Host and port of something that is no server
{

	package Elsewhere;

	sub new { my ($class, %self) = @_; return bless {%self}, $class; }
	sub host { return $_[0]->{host}; }
	sub port { return $_[0]->{port}; }
}

my $quick = "wal_retrieve_retry_interval = '100 ms'";
my $first = new_node('first', streaming => 1, conf => "$quick\nsynchronous_standby_names = ''");
$first->backup('base');
my $second = new_standby($first, 'second', 'base');
$second->append_conf('postgresql.conf',
	"primary_conninfo = '" . $first->connstr . " application_name=second'");
$second->start;

my $on_first = connect_to($first);
my $user = value($on_first, 'SELECT current_user');

#
# The primary is found, wherever it stands in the list.
#
foreach my $case (
	[ 'the primary is the second of two hosts', [ hosts($second, $first), '-d', 'postgres' ] ],
	[
		'in a URI',
		[
			'-d', sprintf('postgresql:///postgres?host=%s,%s&port=%d,%d',
				$second->host, $first->host, $second->port, $first->port)
		]
	],
	[
		'in a connection string',
		[ '-d', sprintf("host='%s,%s' port=%d,%d dbname=postgres", $second->host, $first->host, $second->port, $first->port) ]
	],
	[
		'in the environment', [],
		{ PGHOST => join(',', $second->host, $first->host), PGPORT => join(',', $second->port, $first->port) }
	])
{
	my ($name, $arguments, $env) = @$case;
	my ($code, $out, $err) = leaderctl($second,
		[ 'run', '-e', 'found', '--ttl', '10min', @$arguments, '--', 'sh', '-c', 'echo $LEADER_EPOCH; exit 7' ],
		env => $env // {});

	is($code, 7, "$name: the command has run") or diag $err;
	like($out, qr/^\d+$/, "$name: as the leader");
	is(status($on_first, 'found')->{state}, 'free', "$name: and the lease was given back");
}

# A standby alone never gives a term; looking works there, steering does not.
{
	my $run = start_leaderctl($second, [ 'run', '-e', 'found', '--timeout', '500ms', @command ]);

	is(await_end($run), 124, 'a standby alone: not the leader in time');
	like(said($run), qr/read-only|standby/, 'and it says why');
	is(scalar begins($run), 0, 'no command has run');

	# Where any server will do for the connection, the refusal comes later.
	$run = start_leaderctl($second,
		[ 'run', '-e', 'never held', '--timeout', '500ms', '-d', 'dbname=postgres target_session_attrs=standby', @command ]);
	is(await_end($run), 124, 'a standby that was asked for: not the leader in time');
	like(said($run), $refusal, 'with the reason of the refusal');
	is(scalar begins($run), 0, 'and no command has run');

	my ($code, $out, $err) = leaderctl($second, [ 'status', '-e', 'found' ]);
	is($code, 0, 'status works on a standby') or diag $err;
	like($out, qr/^found +free/m, 'and shows what was replicated');
	($code, $out, $err) = leaderctl($second, [ 'depose', '-e', 'found' ]);
	is($code, 125, 'depose does not');
	like($err, qr/\Aleaderctl: [^\n]+\n\z/, 'and says so in one line');
}

#
# A host that accepts connections and says nothing, and one that does not even
# accept: the next host is tried when the first one has had its time.  Leases are
# long: that time is no part of them.
#
my $silent = Elsewhere->new(host => PostgreSQL::Test::Utils::tempdir_short(), port => 5432);
my $listener = IO::Socket::UNIX->new(
	Type => IO::Socket::UNIX::SOCK_STREAM(),
	Local => $silent->host . '/.s.PGSQL.' . $silent->port,
	Listen => 100) or die "listen: $!";

# Whose queue is full: connections are neither accepted nor refused.
my $full_listener = IO::Socket::INET->new(
	LocalAddr => '127.0.0.1', Proto => 'tcp', Listen => 1) or die "listen: $!";
my $full = Elsewhere->new(host => '127.0.0.1', port => $full_listener->sockport);
my @queue;

# Until one does not get in.
foreach my $attempt (1 .. 20)
{
	my $socket = IO::Socket::INET->new(
		PeerAddr => $full->host, PeerPort => $full->port, Proto => 'tcp', Blocking => 0) or last;
	my $writable = '';

	push @queue, $socket;
	vec($writable, fileno($socket), 1) = 1;
	last if select(undef, $writable, undef, 0.2) == 0;
}

# These run at the same time, as each waits for several seconds.
my %blackholed = (
	'a host that says nothing' => [ $silent, $first ],
	'a host with a full queue' => [ $full, $first ],
	'two of them' => [ $silent, $full, $first ]);
my %candidates;
foreach my $name (sort keys %blackholed)
{
	$candidates{$name} = start_leaderctl($first,
		[ 'run', '-e', $name, '--ttl', '3s', hosts(@{ $blackholed{$name} }), '--', 'sh', '-c', 'echo begin $LEADER_EPOCH' ]);
}
my $shown = start_leaderctl($first, [ 'status', '-e', 'found', hosts($silent, $first) ]);

#
# The same, while leading: the way to the first host is cut, the second one is
# there.  The lease lasts long enough for an attempt over each.
#
my $relay_dir = PostgreSQL::Test::Utils::tempdir_short();
my $relay = Elsewhere->new(host => $relay_dir, port => 5432);
my $relay_pid = fork() // die "fork: $!";
if ($relay_pid == 0)
{
	# Whatever happens, the test's END blocks are not for this process.
	eval { relay("$relay_dir/.s.PGSQL.5432", $first->host . '/.s.PGSQL.' . $first->port); };
	POSIX::_exit(1);
}

# Hands on what comes, until it is killed.
sub relay
{
	my ($local, $peer) = @_;
	my $from = IO::Socket::UNIX->new(
		Type => IO::Socket::UNIX::SOCK_STREAM(), Local => $local, Listen => 100) or return;
	my %pairs;

	local $SIG{PIPE} = 'IGNORE';
	while (1)
	{
		my $ready = '';

		vec($ready, $_, 1) = 1 for fileno($from), keys %pairs;
		select($ready, undef, undef, undef);
		foreach my $number (grep { vec($ready, $_, 1) } keys %pairs)
		{
			my ($in, $out) = @{ $pairs{$number} // next };
			my $data;

			next if sysread($in, $data, 65536) && syswrite($out, $data);
			delete @pairs{ fileno($in), fileno($out) };
			close $_ for $in, $out;
		}
		next if !vec($ready, fileno($from), 1);
		my $client = $from->accept or next;
		my $server = IO::Socket::UNIX->new(Type => IO::Socket::UNIX::SOCK_STREAM(), Peer => $peer) or next;
		$pairs{ fileno $client } = [ $client, $server ];
		$pairs{ fileno $server } = [ $server, $client ];
	}
	return;
}
poll_until(sub { -S "$relay_dir/.s.PGSQL.5432" }, 'the relay');

END
{
	my $status = $?;
	if ($relay_pid) { kill 'KILL', $relay_pid; waitpid $relay_pid, 0; }
	$? = $status;
}

my $cut = start_leaderctl($first, [ 'run', '-e', 'cut', '--ttl', '18s', hosts($relay, $first), @command ]);
my $cut_epoch = await_begin($cut, 1);
freeze($relay_pid);

foreach my $name (sort keys %candidates)
{
	is(eval { await_end($candidates{$name}) } // 'none', 0, "$name: the next one is used") or diag said($candidates{$name});
	is(scalar begins($candidates{$name}), 1, "$name: the command has run there");
}

poll_until(sub { said($cut) =~ /the server answers again|lost/ || ended($cut) }, 'the end of the trouble');
like(said($cut), qr/the server answers again/, 'a leader goes to the next host when the first falls silent');
unlike(said($cut), qr/lost/, 'and goes on leading');
is_deeply([ begins($cut), ends($cut) ], [$cut_epoch], 'with the same command and epoch');
is(status($on_first, 'cut')->{epoch}, $cut_epoch, 'as the server says');
stop_run($cut);
is(await_end($shown), 0, 'a host that says nothing: status asks the next one') or diag said($shown);
like(printed($shown), qr/^found +free/m, 'and shows what that knows');

#
# P7: the commit of a grant waits for a standby that is away.
#
{
	$second->stop;
	rewrite_conf($first, synchronous_standby_names => "'second'");
	await_sync_commits($first);

	my $run = start_leaderctl($first, [ 'run', '-e', 'replicated', '--ttl', '10min', @command ],
		env => { PGAPPNAME => 'replicated' });
	my $waiting = sub {
		my $pid;
		poll_until(
			sub {
				$pid = value($on_first, q{SELECT pid FROM pg_stat_activity
					WHERE application_name = 'replicated' AND wait_event = 'SyncRep' AND query LIKE '%leader_acquire%'});
			},
			'a grant that waits for the standby');
		return $pid;
	};
	my $pid = $waiting->();
	is(scalar begins($run), 0, 'P7: no command while the grant waits for a standby');

	# The wait ends, the standby is still away.
	value($on_first, 'SELECT pg_cancel_backend(?)', $pid);
	await_said($run, qr/warning: /);
	poll_until(
		sub { (status($on_first, 'replicated')->{state} // '') eq 'unconfirmed' },
		'the term to be unconfirmed');

	# Several bids of its holder come to nothing.
	my $asked = sub {
		value($on_first, q{SELECT pid::text || ' ' || query_start FROM pg_stat_activity
			WHERE application_name = 'replicated' AND state = 'idle' AND query LIKE '%leader_acquire%'}) // '';
	};
	my %seen;
	poll_until(
		sub {
			my $bid = $asked->();
			$seen{$bid} = 1 if $bid ne '';
			keys %seen >= 3 || begins($run);
		},
		'three answers');
	is(scalar begins($run), 0, 'P7: no command while the term is unconfirmed');

	$second->start;
	my $epoch = await_begin($run, 1);
	is($epoch, status($on_first, 'replicated')->{epoch}, 'P7: it starts when a standby has the term');
	is(scalar begins($run), 1, 'once');
	is(stop_run($run), 0, 'and ends when it is told to');
	is(status($on_first, 'replicated')->{state}, 'free', 'the lease is given back');
	rewrite_conf($first, synchronous_standby_names => "''");
}

#
# A failover.  "Long" and "short" say how long their leases last.
#
my %run = map {
	my ($name, @options) = @$_;
	($name => start_leaderctl($first, [ 'run', '-e', $name, hosts($first, $second), @options, @command ]));
} ([ 'long', '--ttl', '10min' ], [ 'short', '--ttl', '3s' ]);
my %epoch = map { $_ => await_begin($run{$_}, 1) } keys %run;

$on_first->disconnect;
$first->wait_for_catchup($second, 'replay');
$first->stop('immediate');
await_said($run{short}, qr/lost/);
poll_until(sub { ends($run{short}) == begins($run{short}) }, 'the end of the command with the short lease');
pass('P4: a lease that runs out while there is no primary ends its command');
my $lost = begins($run{short});
$epoch{short} = (begins($run{short}))[-1];
is_deeply([ begins($run{long}), ends($run{long}) ], [ $epoch{long} ], 'P5: a longer one does not');

$second->promote;
my $on_second = connect_to($second);
await_said($run{long}, qr/the server answers again/);
is_deeply([ begins($run{long}), ends($run{long}) ],
	[ $epoch{long} ], 'P5: after the failover the command goes on');
is(status($on_second, 'long')->{epoch}, $epoch{long}, 'P5: with the same epoch');
cmp_ok(value($on_second, q{SELECT renewals FROM leader_stats WHERE election = 'long'}),
	'>', 0, 'P5: which the new primary renews');

my $next = await_begin($run{short}, $lost + 1);
cmp_ok($next, '>', $epoch{short}, 'P1: the short lease leads again with a higher epoch');
is(value($on_second, 'SELECT leader FROM leader_term WHERE epoch = ? AND election = ?', $next, 'short'),
	value($on_second, 'SELECT leader FROM leader_term WHERE epoch = ? AND election = ?', $epoch{short}, 'short'),
	'as the new primary says, and under the same name');
foreach my $name (sort keys %run)
{
	is(stop_run($run{$name}), 0, "$name: ends when it is told to");
	is(status($on_second, $name)->{state}, 'free', "$name: and gives the lease back");
}

#
# A connection that outlives the change of its server from a primary to a
# standby: there is one through a pooler.
#
my ($program) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin', '/sbin';
my @poolers;

sub start_pooler
{
	my ($node) = @_;
	my $pooler = Elsewhere->new(
		host => PostgreSQL::Test::Utils::tempdir_short(),
		port => PostgreSQL::Test::Cluster::get_free_port());
	my $ini = $pooler->host . '/pgbouncer.ini';
	my $log = $PostgreSQL::Test::Utils::log_path . '/pgbouncer_' . $node->name . '.log';

	append_to_file($ini, sprintf(<<'EOC', $node->host, $node->port, $user, $pooler->port, $pooler->host));
[databases]
postgres = host=%s port=%d dbname=postgres user=%s
[pgbouncer]
listen_port = %d
unix_socket_dir = %s
auth_type = any
pool_mode = transaction
server_login_retry = 0.1
EOC
	$pooler->{pid} = fork() // die "fork: $!";
	if ($pooler->{pid} == 0)
	{
		open STDIN, '<', '/dev/null';
		open STDOUT, '>', $log;
		open STDERR, '>&', \*STDOUT;
		{ exec { $program } $program, $ini };
		POSIX::_exit(1);
	}
	push @poolers, $pooler;
	poll_until(sub { -S $pooler->host . '/.s.PGSQL.' . $pooler->port }, 'the pooler');
	return $pooler;
}

END
{
	my $status = $?;
	foreach my $pooler (@poolers) { kill 'KILL', $pooler->{pid}; waitpid $pooler->{pid}, 0; }
	$? = $status;
}

SKIP:
{
	skip 'pgbouncer is not installed', 8 unless $program;

	# The old primary is made anew, as it may have had more than the new one.
	$second->backup('again');
	my $third = new_standby($second, 'third', 'again');
	$third->start;
	my @pair = hosts(map { start_pooler($_) } $second, $third);

	value($on_second, q{SELECT leader_configure('paused', paused => true)});
	my $leader = start_leaderctl($second, [ 'run', '-e', 'demoted', '--ttl', '10min', @pair, @command ]);
	my $candidate = start_leaderctl($second, [ 'run', '-e', 'paused', '--ttl', '1s', @pair, @command ]);
	my $old = await_begin($leader, 1);
	await_said($candidate, qr/candidate/);

	$on_second->disconnect;
	$second->stop;
	$third->promote;
	$second->append_conf('postgresql.conf', "primary_conninfo = '" . $third->connstr . "'");
	$second->set_standby_mode;
	$second->start;
	my $on_third = connect_to($third);

	# The candidate asks from time to time; the leader is made to ask.
	await_said($candidate, $refusal);
	pass('a candidate is refused by what is a standby now');
	value($on_third, q{SELECT leader_configure('paused', paused => false)});
	my $won = await_begin($candidate, 1);
	is(value($on_third, 'SELECT election FROM leader_term WHERE epoch = ?', $won), 'paused',
		'and leads on the primary');
	stop_run($candidate);

	is_deeply([ begins($leader), ends($leader) ], [$old], 'a leader goes on meanwhile');
	is(status($on_third, 'demoted')->{epoch}, $old, 'and its term was replicated');
	is(stop_run($leader), 0, 'when it ends');
	like(said($leader), $refusal, 'it is refused by what is a standby now');
	like(said($leader), qr/lease released/, 'and gives the lease back');
	is(status($on_third, 'demoted')->{state}, 'free', 'on the primary');
}

done_testing();
