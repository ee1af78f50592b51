# Several leaderctl that stand for the same election: who leads next, and when.
#
# Guards that a lease that is given back is taken over at once, long before its
# time, also by who lost its connection meanwhile; that without notifications,
# behind a pooler, timers do; that candidates cost one connection each and do not
# bid in step; that whatever was granted to who is gone ends by itself (P4: and not
# before); and what candidates do who are reluctant, have no time, or stand in an
# election that is paused.
#
# "At once" is told from "in time" by leases of 10 minutes, as without being told
# a candidate would look again after a third of that.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use Leaderctl;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $node = new_node('main');
my $dbh = connect_to($node);
my $directory = PostgreSQL::Test::Utils::tempdir_short();

# What runs while leaderctl leads: it tells when it begins and ends, to a file that
# all commands of an election share.
my $program = "$directory/command.pl";
append_to_file($program, <<'EOC');
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);
open my $log, '>>', "$ENV{COMMANDS}" or die;
sub note_down { syswrite $log, "@_ $ENV{LEADER_EPOCH} " . clock_gettime(CLOCK_MONOTONIC) . "\n"; }
$SIG{TERM} = sub { note_down('end'); exit 0; };
note_down('begin');
while (1) { select undef, undef, undef, 1; }
EOC

my %commands;

# A candidate.  The commands of an election are found by its name.
sub stand
{
	my ($election, $options, %params) = @_;
	my $file = $commands{$election} //= "$directory/commands" . keys %commands;

	return start_leaderctl($params{node} // $node,
		[ 'run', '-e', $election, @$options, '--', $^X, $program ],
		env => { COMMANDS => $file, %{ $params{env} // {} } });
}

# What the commands of an election have told: [what, epoch, time]
sub told_by
{
	my ($election) = @_;
	my $file = $commands{$election};
	return map { [ split ' ' ] } split /\n/, -e $file ? slurp_file($file) : '';
}

sub begins
{
	my ($election) = @_;
	return grep { $_->[0] eq 'begin' } told_by($election);
}

# Waits for the n-th begin of a command in an election.
sub await_begin
{
	my ($election, $n) = @_;
	poll_until(sub { begins($election) >= $n }, "the begin of command $n in $election");
	return (begins($election))[ $n - 1 ];
}

# Whether it comes long before a timer of a third of 10 minutes.
sub begins_soon
{
	my ($election, $n) = @_;
	my $until = now() + 20;

	usleep(20_000) while begins($election) < $n && now() < $until;
	return begins($election) >= $n;
}

# No two commands ran at the same time, and epochs grew.
sub check_commands
{
	my ($election, $name) = @_;
	my @told = told_by($election);
	my ($running, $highest, @wrong) = (0, 0);

	foreach my $line (@told)
	{
		my ($what, $epoch) = @$line;
		push @wrong, "@$line" if $what eq 'begin' && ($running || $epoch <= $highest);
		push @wrong, "@$line" if $what eq 'end' && $running ne $epoch;
		$running = $what eq 'begin' ? $epoch : 0;
		$highest = $epoch;
	}
	is_deeply(\@wrong, [], "P1: $name: one command at a time, with growing epochs");
	return;
}

sub stop_run
{
	my ($run) = @_;
	kill 'TERM', $run->{pid} if !ended($run);
	return await_end($run);
}

sub status { return row($dbh, 'SELECT * FROM leader_status WHERE election = ?', $_[0]); }
sub stats { return row($dbh, 'SELECT * FROM leader_stats WHERE election = ?', $_[0]) // {}; }
sub release { return value($dbh, 'SELECT leader_release(?, ?)', @_); }

sub hold
{
	my ($election, $ttl) = @_;
	my $term = acquire($dbh, $election, 'somebody', $ttl // '1 hour');
	die "no term of $election" unless is_leader($term);
	return $term->{epoch};
}

# The connections of a run, and when each was asked last.
sub backends
{
	my ($run) = @_;
	return column($dbh, 'SELECT pid FROM pg_stat_activity WHERE application_name = ?', $run->{application});
}

my $applications = 0;

sub stand_visibly
{
	my ($election, $options, %params) = @_;
	my $application = 'candidate ' . ++$applications;
	my $run = stand($election, $options, env => { PGAPPNAME => $application, %{ $params{env} // {} } });

	$run->{application} = $application;
	return $run;
}

# Waits until it listens and has asked what it asks first, and answers its backend.
sub await_idle
{
	my ($run, $pattern) = @_;
	return poll_until(
		sub {
			value($dbh, q{SELECT pid FROM pg_stat_activity
				WHERE application_name = ? AND state = 'idle' AND query ~ ?},
				$run->{application}, $pattern // 'leader_acquire');
		},
		"a candidate to have asked; it has said:\n" . said($run));
}

#
# Behind a pooler, from here to the end of the test: a leader whose server
# connections are ended after each use.
#
my ($pgbouncer) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin', '/sbin';
my $pooler;
my $pooled;

{

	package Pooler;

	sub host { return $_[0]->{host}; }
	sub port { return $_[0]->{port}; }
}

sub start_pooler
{
	my $self = bless {
		host => PostgreSQL::Test::Utils::tempdir_short(),
		port => PostgreSQL::Test::Cluster::get_free_port()
	}, 'Pooler';
	my $ini = "$self->{host}/pgbouncer.ini";

	append_to_file($ini,
		sprintf(<<'EOC', $node->host, $node->port, value($dbh, 'SELECT current_user'), $self->port, $self->host));
[databases]
postgres = host=%s port=%d dbname=postgres user=%s pool_size=4
[pgbouncer]
listen_port = %d
unix_socket_dir = %s
auth_type = any
pool_mode = transaction
server_login_retry = 0.1
EOC
	$self->{pid} = fork() // die "fork: $!";
	if ($self->{pid} == 0)
	{
		open STDIN, '<', '/dev/null';
		open STDOUT, '>', "$PostgreSQL::Test::Utils::log_path/pgbouncer_candidates.log";
		open STDERR, '>&', \*STDOUT;
		{ exec { $pgbouncer } $pgbouncer, $ini };
		POSIX::_exit(1);
	}
	poll_until(sub { -S "$self->{host}/.s.PGSQL.$self->{port}" }, 'the pooler');
	return $self;
}

END
{
	my $status = $?;
	if ($pooler) { kill 'KILL', $pooler->{pid}; waitpid $pooler->{pid}, 0; }
	$? = $status;
}

# The connections that the pooler keeps for its next clients.
sub end_pooled_connections
{
	return value($dbh, q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE application_name = 'pooled' AND state = 'idle'});
}

if ($pgbouncer)
{
	$pooler = start_pooler();
	$pooled = stand('pooled', [ '--ttl', '18s' ], node => $pooler, env => { PGAPPNAME => 'pooled' });
	await_begin('pooled', 1);
	end_pooled_connections();
}

#
# Hand-overs
#
{
	my @runs = map { stand('rolling', [ '--ttl', '10min' ]) } 1 .. 3;
	my (@gaps, @wrong);

	foreach my $round (1 .. 10)
	{
		my ($what, $epoch) = @{ await_begin('rolling', $round) };
		my ($leader) = grep { said($_) =~ /leader with epoch $epoch$/m } @runs;

		push @wrong, $round unless $leader;
		last unless $leader;

		# All others know of it, and would look again only much later.
		my $name = status('rolling')->{leader};
		await_said($_, qr/the leader is "\Q$name\E"/) for grep { $_ != $leader } @runs;
		push @wrong, "$round: ended with $leader->{code}" if stop_run($leader) != 0;
		@runs = grep { $_ != $leader } @runs;
		push @wrong, "$round: nobody leads then" unless begins_soon('rolling', $round + 1);
		last if @wrong;
		push @runs, stand('rolling', [ '--ttl', '10min' ]);
		my $next = await_begin('rolling', $round + 1);
		my ($end) = grep { $_->[0] eq 'end' && $_->[1] eq $epoch } told_by('rolling');
		push @gaps, $next->[2] - $end->[2];
	}
	is_deeply(\@wrong, [], 'a rolling restart of three, ten rounds');
	@gaps = sort { $a <=> $b } @gaps, (99) x (10 - @gaps);
	note sprintf 'without a leader for %.3f to %.3f s', $gaps[0], $gaps[-1];

	# The one in the middle, as a machine may be slow at times.
	cmp_ok($gaps[ @gaps / 2 ], '<', 1, 'without a leader for less than a second');
	is(scalar(grep { $_ > 60 } @gaps), 0, 'never for as long as a timer would take');
	check_commands('rolling', 'rolling restart');
	stop_run($_) for @runs;
	is(status('rolling')->{state}, 'free', 'in the end nothing is held');
}

# The next one was cut off when the lease was given back.
{
	my $epoch = hold('gap');
	my $run = stand_visibly('gap', [ '--ttl', '10min' ], env => { PGOPTIONS => '-c log_statement=all' });
	my $old = await_idle($run);

	freeze($run->{pid});
	value($dbh, 'SELECT pg_terminate_backend(?)', $old);
	poll_until(sub { !@{ backends($run) } }, 'the end of a connection');
	release('gap', $epoch);
	thaw($run->{pid});
	my $begin = await_begin('gap', 1);
	is(status('gap')->{epoch}, $begin->[1], 'a release while the connection was lost: leads at once');

	# And what was said on each connection before the first bid.
	my $log = slurp_file($node->logfile);
	my $new = backends($run)->[0];
	foreach my $backend ($old, $new)
	{
		my ($said) = $log =~ /\[$backend\] [^\n]*LOG:  (?:00000: )?(?:statement|execute)([^\n]*)/;
		like($said // '', qr/LISTEN leader_election/, 'what a connection is used for first is to listen');
	}

	# Its own notifications, late ones, and forged ones
	foreach my $n (1 .. 5)
	{
		my $renewals = stats('gap')->{renewals};
		value($dbh, q{SELECT pg_notify('leader_election', '{"election": "gap", "event": "end"}')});
		poll_until(sub { stats('gap')->{renewals} > $renewals }, 'a leader to look') if $n == 1;
	}
	is_deeply([ map { $_->[1] } told_by('gap') ], [ $begin->[1] ],
		'a leader that is told of an end looks, and goes on');
	is(stop_run($run), 0, 'until it is told to end');
	is(status('gap')->{state}, 'free', 'and gives the lease back');
}

#
# Many candidates, of an election that gives nothing to them
#
{
	value($dbh, q{SELECT leader_configure('many', paused => true)});
	my @runs = map { stand_visibly('many', [ '--ttl', '3s' ]) } 1 .. 20;
	my $names = [ map { $_->{application} } @runs ];
	my $connections = sub {
		return value($dbh, 'SELECT count(*) FROM pg_stat_activity WHERE application_name = ANY (?)', $names);
	};
	my $bids = sub {
		return column($dbh,
			q{SELECT extract(epoch FROM query_start)::float8 FROM pg_stat_activity
			   WHERE application_name = ANY (?) AND query LIKE '%leader_acquire%'}, $names);
	};
	poll_until(sub { @{ $bids->() } == @runs }, 'all candidates to have bid');
	is($connections->(), 20, 'each of 20 candidates has one connection');

	# All are woken at once, and come again after a third of their TTL, or less.
	my $woken = value($dbh, q{SELECT extract(epoch FROM clock_timestamp())::float8
		FROM pg_notify('leader_election', '{"election": "many", "event": "end"}')});
	my @at;
	poll_until(
		sub {
			@at = sort { $a <=> $b } @{ $bids->() };
			$at[0] > $woken + 0.5;
		},
		'all candidates to bid again');
	note sprintf 'bids within %.3f s', $at[-1] - $at[0];
	cmp_ok($at[-1] - $at[0], '>', 0.06, 'who was woken at once does not come at once again');
	is($connections->(), 20, 'each has still one connection');

	value($dbh, q{SELECT leader_configure('many', paused => false)});
	await_begin('many', 1);
	kill 'TERM', map { $_->{pid} } @runs;
	await_end($_) for @runs;
	is(scalar(grep { $_->{code} == 143 || $_->{code} == 0 } @runs), 20, 'all end when they are told to');
	check_commands('many', 'twenty candidates');
	is(status('many')->{state}, 'free', 'in the end nothing is held');
}

#
# Without notifications timers do.
#
{
	my $epoch = hold('unnotified');
	my $run = stand_visibly('unnotified', [ '--ttl', '900ms' ]);

	await_idle($run);
	$dbh->do('SET leader_election.notify = off');
	release('unnotified', $epoch);
	$dbh->do('RESET leader_election.notify');

	# It was told to look again after a third of an hour's lease, so only one that
	# comes anew looks sooner.
	my $sooner = stand('unnotified', [ '--ttl', '1s' ], env => { PGOPTIONS => '-c leader_election.notify=off' });
	await_begin('unnotified', 1);
	stop_run($run);
	stop_run($sooner);
	is(status('unnotified')->{state}, 'free', 'notifications are off: leads, and gives the lease back');

	my @runs = map { stand('timers', [ '--ttl', '900ms' ], env => { PGOPTIONS => '-c leader_election.notify=off' }) } 1 .. 2;
	await_begin('timers', 1);
	my ($leader) = grep { said($_) =~ /leader with epoch/ } @runs;
	stop_run($leader);
	my ($next) = grep { $_ != $leader } @runs;
	poll_until(sub { said($next) =~ /leader with epoch/ }, 'the next leader');
	pass('the next one finds out by looking');
	stop_run($next);
	check_commands('timers', 'timers alone');
}

#
# An acquire that hangs, and those who are gone when it is granted
#
{
	my $locker = connect_to($node);
	my @gone = map { stand_visibly('hanging', [ '--ttl', '1s' ]) } 1 .. 2;

	# What all bids have to read.
	await_begin('hanging', 1);
	my ($first) = grep { said($_) =~ /leader with epoch/ } @gone;
	stop_run($first);
	await_begin('hanging', 2);
	stop_run($_) for @gone;
	my $begins = begins('hanging');
	$locker->do('BEGIN');
	$locker->do('LOCK TABLE leader_election_state IN ACCESS EXCLUSIVE MODE');

	@gone = map { stand_visibly('hanging', [ '--ttl', '1s' ]) } 1 .. 2;
	my $hanging = sub {
		return value($locker, q{SELECT count(*) FROM pg_stat_activity
			WHERE application_name = ANY (?) AND wait_event_type = 'Lock' AND query LIKE '%leader_acquire%'},
			[ map { $_->{application} } @gone ]);
	};
	await_said($_, qr/warning: [^\n]*did not answer in time/) for @gone;
	poll_until(sub { $hanging->() >= 2 }, 'several bids that hang');
	pass('a bid that hangs is given up, and made again over another connection');
	is(scalar begins('hanging'), $begins, 'no command is started meanwhile');

	# One is told to end, the other cannot even do that.
	kill 'TERM', $gone[0]{pid};
	kill 'KILL', marked($gone[1]);
	is(await_end($_) > 128 ? 1 : 0, 1, 'a candidate ends while its bid hangs') for @gone;
	my $third = stand('hanging', [ '--ttl', '10min' ]);
	usleep(100_000);
	$locker->do('COMMIT');
	$locker->disconnect;
	await_begin('hanging', $begins + 1);
	pass('after that the next one leads');
	is(stop_run($third), 0, 'and ends');
	poll_until(sub { status('hanging')->{state} ne 'held' }, 'the end of the last grant');
	poll_until(
		sub { !value($dbh, q{SELECT count(*) FROM pg_locks WHERE relation = 'leader_election_state'::regclass
			AND pid <> pg_backend_pid()}) },
		'the end of all bids');
	pass('in the end nothing is held');
	check_commands('hanging', 'bids that hang');
}

#
# Everything is killed: the lease ends by itself, a session's term with its
# connection.
#
{
	my $killed = stand('killed', [ '--ttl', '3s' ]);
	await_begin('killed', 1);
	my $next = stand('killed', [ '--ttl', '10min' ]);
	await_said($next, qr/candidate; the leader is/);
	my $asked = now();
	my $left = value($dbh, q{SELECT extract(epoch FROM expires_in)::float8 FROM leader_status WHERE election = 'killed'});

	# All at once: else the guard could release the lease before its turn comes.
	my @killed = marked($killed);
	kill 'STOP', @killed;
	kill 'KILL', @killed;
	my $begin = await_begin('killed', 2);
	cmp_ok($begin->[2], '>=', $asked + $left, 'P4: all processes are killed: the next one leads, but not before the lease has run out');
	stop_run($next);

}

# With --session the end of the connection is enough: its candidates look often.
SKIP:
{
	my @session = ('--session', '--ttl', '10min');
	my $killed = stand('session', [@session]);
	await_begin('session', 1);
	my $next = stand('session', [@session]);
	await_said($next, qr/candidate; the leader is/);
	kill 'KILL', marked($killed);
	ok(begins_soon('session', 2), 'with --session the next one leads at once')
	  or skip 'nobody leads', 3;
	my $begin = await_begin('session', 2);

	# The connection alone ends.  Who loses it stands again, too.
	my $third = stand('session', [@session]);
	await_said($third, qr/candidate; the leader is/);
	value($dbh, 'SELECT pg_terminate_backend(?)', status('session')->{pid});
	await_said($next, qr/leadership lost with the connection/);
	ok(begins_soon('session', 3), 'also when only the connection has ended');
	my $last = await_begin('session', 3);
	cmp_ok($last->[1], '>', $begin->[1], 'P1: with a higher epoch');
	stop_run($_) for $third, $next;
	is(status('session')->{state}, 'free', 'in the end nothing is held');
}

#
# Reluctant ones
#
{
	my $asked = now();
	my $run = stand_visibly('untouched', [ '--ttl', '10min', '--reluctant', '1500ms' ]);
	await_idle($run, 'leader_(?:status|acquire)');
	is(stats('untouched')->{losing_bids} // 0, 0, 'reluctant: no bid at first');
	is(status('untouched'), undef, 'and no election');
	my $begin = await_begin('untouched', 1);
	cmp_ok($begin->[2] - $asked, '>=', 1.5, 'it leads when the election has been free for so long');
	my $stats = stats('untouched');
	is("$stats->{terms} $stats->{losing_bids}", '1 0', 'by its first bid');
	stop_run($run);

	# While somebody leads it does not bid either, and its time begins after that.
	my $epoch = hold('taken');
	$run = stand_visibly('taken', [ '--ttl', '10min', '--reluctant', '1s' ]);
	my $willing = stand_visibly('taken too', [ '--ttl', '10min' ]);
	my $unwilling = stand_visibly('taken too', [ '--ttl', '10min', '--reluctant', '10min' ]);
	my $too = await_begin('taken too', 1);
	await_idle($_, 'leader_status') for $run, $unwilling;
	is(stats('taken')->{losing_bids}, 0, 'reluctant: no bid while somebody leads');
	$asked = now();
	release('taken', $epoch);
	$begin = await_begin('taken', 1);
	cmp_ok($begin->[2] - $asked, '>=', 1, 'its time begins with the vacancy');
	is(stats('taken')->{losing_bids}, 0, 'and it bids only when that has passed');
	stop_run($run);

	# A willing one comes first.
	stop_run($willing);
	$willing = stand('taken too', [ '--ttl', '10min' ]);
	$begin = await_begin('taken too', 2);
	like(said($willing), qr/leader with epoch $begin->[1]$/m, 'one that is not reluctant leads before');
	unlike(said($unwilling), qr/leader with epoch/, 'a reluctant one does not');
	is(stop_run($unwilling), 143, 'it ends when it is told to');
	stop_run($willing);
	is(status('taken too')->{state}, 'free', 'in the end nothing is held');
}

#
# No time, and no terms
#
{
	hold('occupied');
	my $run = stand('occupied', [ '--timeout', '300ms' ]);
	is(await_end($run), 124, 'not the leader in time, as another one is');
	is(scalar begins('occupied'), 0, 'the command is not started');

	my $asked = now();
	$run = stand('occupied', [ '--timeout', '700ms' ], env => { PGHOST => $directory });
	is(await_end($run), 124, 'nor where nothing listens');
	cmp_ok(now() - $asked, '>=', 0.7, 'but not before that time has passed');

	value($dbh, q{SELECT leader_configure('paused', paused => true)});
	$run = stand_visibly('paused', [ '--ttl', '1s' ]);
	await_idle($run);
	poll_until(sub { stats('paused')->{losing_bids} >= 2 }, 'a candidate to bid again');
	is(scalar begins('paused'), 0, 'a paused election: waits');
	value($dbh, q{SELECT leader_configure('paused', paused => false)});
	await_begin('paused', 1);
	is(stop_run($run), 0, 'resumed: leads, and ends');
}

SKIP:
{
	skip 'pgbouncer is not installed', 6 unless $pgbouncer;

	# Each renewal met another server connection than what was asked before.
	foreach my $n (1 .. 2)
	{
		poll_until(sub { stats('pooled')->{renewals} >= $n }, "renewal $n through the pooler");
		end_pooled_connections();
	}
	my ($begin) = begins('pooled');
	is_deeply([ map { $_->[1] } told_by('pooled') ], [ $begin->[1] ],
		'A01: through a transaction pooler a lease is renewed over any connection');
	is(status('pooled')->{epoch}, $begin->[1], 'with the same epoch');

	my $next = stand('pooled', [ '--ttl', '1s' ], node => $pooler);
	await_said($next, qr/candidate; the leader is/);
	is(stop_run($pooled), 0, 'it ends when it is told to');
	like(said($pooled), qr/lease released/, 'and gives the lease back');
	await_begin('pooled', 2);
	pass('the next one finds out by looking');
	is(stop_run($next), 0, 'and ends, too');
	check_commands('pooled', 'through a transaction pooler');
}

done_testing();
