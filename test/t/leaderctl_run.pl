# Guards how "leaderctl run" deals with its command: exit codes (R07), the
# environment by which the command is fenced without knowing of it (P2), signals
# and their order against the release (R02), processes that outlive the command
# (R10, R11), descriptors, the terminal, and that neither a leader nor a candidate
# is in anybody's way at the server (A14, K05).
#
# For what comes at random times see leaderctl_rounds.pl, for the command line
# leaderctl_options.pl.
use strict;
use warnings FATAL => 'all';

use Encode qw(decode);
use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use Leaderctl;
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

# A lease that ran out by itself would come too late for everything here.
my $ttl = '10min';

my $node = new_node('main');
my $dbh = connect_to($node);
my $files = PostgreSQL::Test::Utils::tempdir_short();

# Scripts see all that is in the environment, and the same client programs.
my @perl = ($^X, '-we');

sub run_args
{
	my ($election, $command, @options) = @_;
	return [ 'run', '-e', $election, '--ttl', $ttl, @options, '--', @$command ];
}

# Starts one and waits until its command says that it has begun.
sub begin
{
	my ($election, $command, %params) = @_;
	my $run =
	  start_leaderctl($node, run_args($election, $command, @{ $params{options} // [] }), %params);

	await_printed($run, qr/^begun/m);
	return $run;
}

sub state_of_election
{
	my ($election) = @_;
	return value($dbh, 'SELECT state FROM leader_status WHERE election = ?', $election) // 'none';
}

sub end_reasons
{
	my ($election) = @_;
	return join ' ', map { $_ // 'goes on' } @{
		column($dbh, 'SELECT end_reason FROM leader_term WHERE election = ? ORDER BY epoch', $election) };
}

# Ended, given back, and nobody left
sub ended_well
{
	my ($run, $election, $code, $case) = @_;

	is(await_end($run), $code, "$case: exit code $code");
	is(state_of_election($election), 'free', "$case: the election is free at once");
	is_deeply([ marked($run) ], [], "$case: no process is left");
	return;
}

#
# Descriptors and signals are those that leaderctl was started with.
#

{
	my @show = (@perl, <<'EOC');
opendir my $fds, "/proc/self/fd";
print "fd $_\n" for sort { $a <=> $b } grep { /\d/ && readlink "/proc/self/fd/$_" } readdir $fds;
open my $status, "<", "/proc/self/status";
print grep { /^Sig(?:Blk|Ign|Cgt)/ } <$status>;
EOC
	my %cases = (
		'as usual' => sub { },
		'with SIGHUP ignored' => sub { $SIG{HUP} = 'IGNORE'; },
		'with odd signals' => sub {
			$SIG{$_} = 'IGNORE' for qw(CHLD PIPE USR1 QUIT);
			POSIX::sigprocmask(POSIX::SIG_BLOCK,
				POSIX::SigSet->new(POSIX::SIGUSR2, POSIX::SIGALRM, POSIX::SIGHUP));
		},
		'with a descriptor' => sub {
			open(my $file, '<', '/dev/null');
			POSIX::dup2(fileno $file, 9);
		});
	my %kinds = (
		'a lease' => [],
		'a session' => ['--session'],
		'a watchdog' => [qw(--watchdog 1min)]);

	foreach my $case (sort keys %cases)
	{
		my $before = $cases{$case};
		my $bare = start_leaderctl($node, [ @show[ 1 .. $#show ] ], program => [$^X], before => $before);
		my %runs = map {
			$_ => start_leaderctl($node, run_args("inherits $_ $case", \@show, @{ $kinds{$_} }),
				before => $before)
		} sort keys %kinds;

		is(await_end($bare), 0, "$case: without leaderctl");
		like(printed($bare), qr/fd 0\nfd 1\nfd 2\n/, "$case: it shows what there is");
		foreach my $kind (sort keys %kinds)
		{
			is(await_end($runs{$kind}), 0, "$case, $kind: exit code");
			is(printed($runs{$kind}), printed($bare),
				"R10: $case, $kind: the command finds nothing of ours");
		}
	}
}

#
# Exit codes (R07)
#

{
	my %own = (
		0 => [qw(true)],
		3 => [ 'sh', '-c', 'exit 3' ],
		123 => [ 'sh', '-c', 'exit 123' ],
		124 => [ 'sh', '-c', 'exit 124' ],
		125 => [ 'sh', '-c', 'exit 125' ],
		137 => [ 'sh', '-c', 'kill -9 $$' ],
		255 => [ 'sh', '-c', 'exit 255' ]);
	my %runs = map { $_ => start_leaderctl($node, run_args("own $_", $own{$_})) } sort keys %own;

	foreach my $code (sort { $a <=> $b } keys %own)
	{
		ended_well($runs{$code}, "own $code", $code, "R07: the command's own $code");
		is(end_reasons("own $code"), 'released', "R14: $code: released");
	}
}

# A command that cannot be executed keeps nobody else waiting (B08, R12).
{
	my $plain = "$files/plain";
	my %commands = (
		126 => [$plain],
		127 => ["$files/missing"]);

	append_to_file($plain, "no program\n");
	foreach my $code (sort keys %commands)
	{
		my $election = "cannot execute $code";
		my $held = acquire($dbh, $election, 'holder', '1 hour');
		my $first = start_leaderctl($node, run_args($election, $commands{$code}));
		await_said($first, qr/candidate;/);
		value($dbh, 'SELECT leader_release(?, ?)', $election, $held->{epoch});
		is(await_end($first), $code, "B08: exit code $code");
		like(said($first), qr/error: could not execute "\Q$commands{$code}[0]\E": /,
			"$code: it says why");

		my ($next) = leaderctl($node, run_args($election, ['true']));
		is($next, 0, "B08: $code: the next one leads");
		is(end_reasons($election), 'released released released',
			"B08: $code: it was given back, not waited for");
	}

	my ($code) = leaderctl($node, run_args('a directory', [$files]));
	is($code, 126, 'R07: a directory is no command');
}

# What is not the command's: not leader in time, lost
{
	acquire($dbh, 'held', 'holder', '1 hour');
	my $began = now();
	my ($code, undef, $said) =
	  leaderctl($node, run_args('held', [ 'touch', "$files/touched" ], '--timeout', '300ms'));
	is($code, 124, 'R07: not leader in time');
	cmp_ok(elapsed($began), '>=', 0.3, 'but not before that');
	like($said, qr/the leader is "holder"/, 'it says who leads');
	ok(!-e "$files/touched", 'the command was not started');

	my $run = begin('lost', [ 'sh', '-c', 'echo begun; exec sleep 600' ],
		options => [qw(--on-loss exit)]);
	value($dbh, q{SELECT leader_depose('lost')});
	is(await_end($run), 123, 'R07: leadership lost');
	is_deeply([ marked($run) ], [], 'and no process is left');

	# The default is to go on as a candidate.
	$run = begin('comes back', [ 'sh', '-c', 'echo begun; exec sleep 600' ]);
	value($dbh, q{SELECT leader_depose('comes back')});
	await_printed($run, qr/begun\n.*begun/s);
	kill 'TERM', $run->{pid};
	ended_well($run, 'comes back', 143, 'a second term');
	is(end_reasons('comes back'), 'deposed released', 'it was a term of its own');
}

# leaderctl's own failures
{
	my $hba = $node->data_dir . '/pg_hba.conf';
	my $rules = slurp_file($hba);

	$dbh->do('CREATE DATABASE bare');
	$dbh->do(q{CREATE ROLE locked LOGIN PASSWORD 'right'});
	unlink $hba;
	append_to_file($hba, "local all locked scram-sha-256\n$rules");
	$node->reload;
	poll_until(
		sub {
			value($dbh, q{SELECT count(*) FROM pg_hba_file_rules WHERE user_name = '{locked}'});
		},
		'the rules');

	my %cases = (
		'no extension' => [ { PGDATABASE => 'bare' }, qr/extension "leader_election" is not installed/ ],
		'no such database' => [ { PGDATABASE => 'missing' }, qr/3D000.*"missing"/ ],
		'no such role' => [ { PGUSER => 'nobody_of_that_name' }, qr/28000.*nobody_of_that_name/ ],
		'no password' => [ { PGUSER => 'locked' }, qr/password/ ],
		'wrong password' => [ { PGUSER => 'locked', PGPASSWORD => 'wrong' }, qr/28P01/ ]);

	foreach my $case (sort keys %cases)
	{
		my ($env, $pattern) = @{ $cases{$case} };
		my ($code, $printed, $said) =
		  leaderctl($node, run_args('any', [qw(echo begun)]), env => { PGPASSFILE => "$files/none", %$env });

		is($code, 125, "R07: $case");
		like($said, $pattern, "$case: it says so");
		is(scalar(() = $said =~ /\n/g), 1, "$case: in one line") or diag($said);
		is($printed, '', "$case: the command was not started");
	}
	my ($code) = leaderctl($node, run_args('locked', ['true']),
		env => { PGUSER => 'locked', PGPASSWORD => 'right' });
	is($code, 0, 'the right password');
}

#
# The environment
#

my @show_environment =
  (@perl, 'print map { "$_=$ENV{$_}\n" } sort grep { /^(?:LEADER_(?:ELECTION|EPOCH|HOLDER|FENCE)$|PGOPTIONS|NOTIFY_|WATCHDOG_)/ } keys %ENV');

sub environment { return { map { split /=/, $_, 2 } split /\n/, printed($_[0]) }; }

{
	my $run = start_leaderctl(
		$node,
		run_args('environment', \@show_environment),
		env => {
			PGOPTIONS => '-c work_mem=1234kB',
			NOTIFY_SOCKET => '@nobody.listens',
			WATCHDOG_USEC => '20000000',
			WATCHDOG_PID => undef
		});
	await_end($run);
	my $environment = environment($run);
	my $term = row($dbh, q{SELECT epoch, leader FROM leader_term WHERE election = 'environment'});

	is_deeply(
		$environment,
		{
			LEADER_ELECTION => 'environment',
			LEADER_EPOCH => $term->{epoch},
			LEADER_HOLDER => $term->{leader},
			LEADER_FENCE => qq{"environment"=$term->{epoch}},
			PGOPTIONS =>
			  qq{-c work_mem=1234kB -c leader_election.fence="environment"=$term->{epoch}}
		},
		'the environment tells of the term, and not of our supervisor');

	# With a watchdog of its own, the command is told of that.
	$run = start_leaderctl($node, run_args('watched', \@show_environment, '--watchdog', '1min'),
		env => { NOTIFY_SOCKET => '@nobody.listens', WATCHDOG_USEC => '20000000', WATCHDOG_PID => 1 });
	await_end($run);
	$environment = environment($run);
	is($environment->{WATCHDOG_USEC}, 60_000_000, 'how often a watched command has to say that it lives');
	isnt($environment->{NOTIFY_SOCKET}, '@nobody.listens', 'and where');
	ok($environment->{NOTIFY_SOCKET}, 'there is a socket');
	ok(!exists $environment->{WATCHDOG_PID}, 'whoever it is');
}

# P2: psql is fenced without a change to its SQL, whatever the name is.
{
	my @names = (
		'plain', 'two words', 'a,b', q{it's "quoted"}, 'back\slash', 'ends with \\', 'a=b=c',
		"Gr\xc3\xbc\xc3\x9fe \xe2\x98\x83", '  blanks  ', '-e', q{x"=1,"y}, '$HOME %s ;#', '\" ');
	my $script = <<'EOC';
trap "" TERM
write() { psql -X -q -v VERBOSITY=verbose -c "INSERT INTO $1 VALUES (1)" 2>&1; }
write $0 && echo begun
while ! test -e $1; do sleep 0.05; done
write $0
echo second
EOC
	# As the server has them
	my @decoded = map { decode('UTF-8', $_) } @names;
	my @runs;
	my $go = "$files/go";

	foreach my $i (0 .. $#names)
	{
		$dbh->do("CREATE TABLE fenced_$i (v int)");
		$dbh->do("SELECT leader_protect('fenced_$i', ?)", undef, $decoded[$i]);
		push @runs,
		  start_leaderctl($node, run_args($names[$i], [ 'sh', '-c', $script, "fenced_$i", $go ], qw(--kill-after 5min)));
	}
	await_printed($_, qr/begun|[A-Z0-9]{5}:/) for @runs;
	foreach my $i (0 .. $#names)
	{
		is(printed($runs[$i]), "begun\n", "P2: <$names[$i]>: its leader writes");

		# The command ignores that it is told to end.
		value($dbh, 'SELECT leader_depose(?)', $decoded[$i]);
		acquire($dbh, $decoded[$i], 'the next one', '1 hour')->{is_leader} or die;
	}
	append_to_file($go, '');
	await_printed($_, qr/second/) for @runs;
	foreach my $i (0 .. $#names)
	{
		like(printed($runs[$i]), qr/^ERROR:  LE001:/m, "P2: <$names[$i]>: it does not when replaced");
		is(value($dbh, "SELECT count(*) FROM fenced_$i"), 1, "<$names[$i]>: one row");
	}
	kill 'TERM', $_->{pid} for @runs;
	await_end($_) for @runs;
}

# One inside another: both tokens are presented.
{
	$dbh->do('CREATE TABLE of_outer (v int)');
	$dbh->do('CREATE TABLE of_inner (v int)');
	$dbh->do(q{SELECT leader_protect('of_outer', 'the outer, "one"'), leader_protect('of_inner', 'inner')});
	my ($code, $printed, $said) = leaderctl(
		$node,
		run_args('the outer, "one"',
			[
				'leaderctl', @{ run_args('inner',
					[ qw(psql -X -q -1 -c), 'INSERT INTO of_outer VALUES (1)', '-c', 'INSERT INTO of_inner VALUES (1)' ]) }
			]));

	is($code, 0, 'leaderctl below leaderctl') or diag($said, $printed);
	is(value($dbh, 'SELECT (SELECT count(*) FROM of_outer) + (SELECT count(*) FROM of_inner)'),
		2, 'it may write what needs either token');
}

#
# Signals (R02)
#

# The command ends first: while it does, the lease is held, and it may write.
{
	$dbh->do('CREATE TABLE last_words (v text)');
	$dbh->do(q{SELECT leader_protect('last_words', 'forwarded')});
	my @command = (@perl, <<'EOC');
$| = 1;
for my $name (qw(HUP USR1 USR2)) { $SIG{$name} = sub { print "$name\n" }; }
$SIG{TERM} = sub {
	select undef, undef, undef, 0.3;
	print "lease ", `psql -X -A -t -c "SELECT leader_check('forwarded', $ENV{LEADER_EPOCH})"`;
	system "psql", "-X", "-q", "-c", "INSERT INTO last_words VALUES ('the end')";
	exit 7;
};
print "begun ", (getpgrp == $$ ? "in a group of its own" : "in another's group"), "\n";
sleep 1 while 1;
EOC
	my $run = begin('forwarded', \@command);

	like(printed($run), qr/in a group of its own/, 'R01: the command has a process group of its own');
	foreach my $name (qw(HUP USR1 USR2))
	{
		kill $name, $run->{pid};
		await_printed($run, qr/^$name$/m);
		pass("R02: SIG$name is passed on");
	}
	kill 'TERM', $run->{pid};
	ended_well($run, 'forwarded', 7, 'R02: TERM');
	like(printed($run), qr/^lease t$/m, 'R02: the lease is held until the command has ended');
	is(value($dbh, 'SELECT count(*) FROM last_words'), 1, 'R02: its last words are written');
	is(end_reasons('forwarded'), 'released', 'R14: TERM: released');
}

# Those that a command dies of
foreach my $signal ([ INT => 130 ], [ QUIT => 131 ], [ TERM => 143 ], [ USR1 => 138 ], [ HUP => 129 ])
{
	my ($name, $code) = @$signal;
	my $run = begin("dies of $name", [ @perl, '$| = 1; print "begun\n"; sleep 600' ]);

	kill $name, $run->{pid};
	ended_well($run, "dies of $name", $code, "R02: $name");
}

# A hangup that was ignored when leaderctl was started, as under nohup
{
	my $run = begin('nohup', [ @perl, '$| = 1; $SIG{USR1} = sub { print "USR1\n" }; print "begun\n"; sleep 1 while 1' ],
		before => sub { $SIG{HUP} = 'IGNORE'; });

	kill 'HUP', $run->{pid};
	kill 'USR1', $run->{pid};
	await_printed($run, qr/USR1/);
	unlike(said($run), qr/stopping/, 'a hangup that is ignored stops nothing');
	kill 'TERM', $run->{pid};
	ended_well($run, 'nohup', 143, 'and TERM does');
}

# Where there is no command yet, those that would be passed on have nobody to go
# to; a hangup ends a candidate.
{
	acquire($dbh, 'candidate', 'holder', '1 hour');
	my @runs = map { start_leaderctl($node, run_args('candidate', ['true'])) } 1 .. 3;

	await_said($_, qr/candidate;/) for @runs;
	kill 'USR1', $_->{pid} for @runs;
	kill 'USR2', $_->{pid} for @runs;
	foreach my $signal ([ INT => 130 ], [ HUP => 129 ], [ TERM => 143 ])
	{
		my ($name, $code) = @$signal;
		my $run = shift @runs;

		kill $name, $run->{pid};
		is(await_end($run), $code, "a candidate: $name");
		is_deeply([ marked($run) ], [], 'no process is left');
	}
}

# A command that does not end: the second signal kills it, or the time that it has
{
	my @stubborn = (@perl, '$| = 1; $SIG{TERM} = sub { print "TERM\n" }; print "begun\n"; sleep 1 while 1');
	my $run = begin('stubborn', \@stubborn);
	my $told_stubborn = now();

	kill 'TERM', $run->{pid};
	await_printed($run, qr/TERM/);
	is(state_of_election('stubborn'), 'held', 'a command that does not end keeps its lease');
	ok(!ended($run), 'and leaderctl waits for it');

	# Those who signal a process and its group send two at once, as timeout(1)
	# does: they are one, so this one has no effect before its time.
	poll_until(sub { kill 'TERM', $run->{pid}; ended($run) }, 'a later TERM to kill it');
	cmp_ok(elapsed($told_stubborn), '>=', 0.5, 'several at once are one');
	ended_well($run, 'stubborn', 137, 'a second TERM');

	$run = begin('kill after', \@stubborn, options => [qw(--kill-after 400ms)]);
	my $told = now();
	kill 'TERM', $run->{pid};
	ended_well($run, 'kill after', 137, '--kill-after');
	cmp_ok(elapsed($told), '>=', 0.4, '--kill-after: not before that');
	like(printed($run), qr/TERM/, '--kill-after: it was told first');
}

# A stopped command is no trouble: it is told all the same.
{
	my $run = begin('stopped', [ @perl, '$| = 1; print "begun $$\n"; sleep 600' ]);
	my ($pid) = printed($run) =~ /begun (\d+)/;

	kill 'STOP', $pid;
	poll_until(sub { (state_of_process($pid))[0] eq 'T' }, 'the command to stop');
	kill 'TERM', $run->{pid};
	ended_well($run, 'stopped', 143, 'a stopped command');
}

#
# Processes that outlive the command (R10, R11)
#

# One in its group is ended before the lease is given back.
{
	my @command = (@perl, <<'EOC');
$| = 1;
pipe my $ready, my $tell or die;
if (fork == 0)
{
	$SIG{TERM} = sub {
		select undef, undef, undef, 0.3;
		print "lease ", `psql -X -A -t -c "SELECT leader_check('stays', $ENV{LEADER_EPOCH})"`;
		exit;
	};
	syswrite $tell, "x";
	sleep 1 while 1;
}
sysread $ready, my $byte, 1;
exit 4;
EOC
	my $run = start_leaderctl($node, run_args('stays', \@command));

	ended_well($run, 'stays', 4, 'R10: a process stays in the group');
	like(printed($run), qr/^lease t$/m, 'R10: it is ended before the release');
	unlike(said($run), qr/left its process group/, 'R10: nobody is said to have left it');

	# And if it does not want to
	$run = start_leaderctl($node,
		run_args('stays for ever', [ 'sh', '-c', q{trap '' TERM; sleep 600 & exit 4} ]));
	ended_well($run, 'stays for ever', 4, 'R10: one that ignores TERM');
}

# One that has left the group is a daemon: it lives on, and keeps nothing.
{
	my %ours = map { (readlink($_) // '') => 1 } glob '/proc/self/fd/*';
	my @command = (@perl, <<'EOC');
pipe my $ready, my $tell or die;
if (fork == 0)
{
	require POSIX;
	POSIX::setsid();
	syswrite $tell, "x";
	close $_ for $tell, $ready;
	exec "sleep", "600";
}
sysread $ready, my $byte, 1;
exit 5;
EOC
	foreach my $kind ([], ['--session'])
	{
		my $election = "daemon @$kind";
		my $run = start_leaderctl($node, run_args($election, \@command, @$kind));

		is(await_end($run), 5, "R10: $election: exit code");
		is(state_of_election($election), 'free', "R10: $election: the lease is given back");
		is(end_reasons($election), 'released', "R10: $election: by leaderctl");
		like(said($run), qr/warning: 1 process that the command has started left its process group/,
			"R10: $election: it warns");

		my @left = marked($run);
		is(scalar(@left), 1, "R10: $election: the daemon lives");
		is(join(' ', sort grep { /socket|anon_inode|pipe/ && !$ours{$_} } map { readlink } glob "/proc/$left[0]/fd/*"),
			'', "R11: $election: and has no descriptor of ours");
		kill 'KILL', @left;
	}
}

# R11: whoever is killed, nobody else has the connection.
{
	my $run = begin('killed session', [ 'sh', '-c', 'echo begun; exec sleep 600' ], options => ['--session']);
	my $backend = value($dbh, q{SELECT pid FROM leader_status WHERE election = 'killed session'});
	my $own = own_processes($run);

	ok($backend, 'a session leads');
	ok($own->{guard}, 'there is a guard');
	is(scalar(grep { parent_of_is($_, $own->{guard}) } marked($run)), 1, 'whose child the command is');
	freeze($own->{guard});
	kill 'KILL', $run->{pid};
	poll_until(sub { !value($dbh, 'SELECT count(*) FROM pg_stat_activity WHERE pid = ?', $backend) },
		'the end of the session');
	pass('R11: the session ends while the guard lives');
	thaw($own->{guard});
	poll_until(sub { !marked($run) }, 'the end of the guard');
	await_end($run);
}

sub parent_of_is
{
	my ($pid, $parent) = @_;
	return ((state_of_process($pid))[1] // 0) == $parent;
}

#
# A terminal
#

SKIP:
{
	my $master = eval { require IO::Pty; IO::Pty->new } or skip('no terminal can be made', 5);
	my @command = (@perl, '$| = 1; while (<STDIN>) { print "got $_" }');
	my $shell = q{leaderctl "$@"; echo "code $?"; read line; echo "shell has $line"};
	my $run = start_leaderctl(
		$node,
		[ '-c', $shell, 'sh', @{ run_args('terminal', \@command) } ],
		program => ['sh'],
		before => sub {
			# Needs to be no group's leader
			my $pid = fork() // die;
			if ($pid)
			{
				waitpid $pid, 0;
				POSIX::_exit($? >> 8);
			}
			$master->make_slave_controlling_terminal;
			my $slave = $master->slave;
			open(STDIN, '<&', $slave);
			open(STDOUT, '>&', $slave);
			open(STDERR, '>&', $slave);
			close $slave;
			close $master;
		});
	my $seen = '';
	my $await = sub {
		my ($pattern, $case) = @_;
		my $ok = eval {
			poll_until(
				sub {
					$seen .= $_ for grep { defined } read_some($master);
					$seen =~ $pattern;
				},
				$case);
		};
		ok($ok, $case) or diag($seen);
		return;
	};

	$master->close_slave;
	syswrite $master, "one\n";
	$await->(qr/got one/, 'a command reads from the terminal');
	syswrite $master, "\cZ";
	syswrite $master, "two\n";
	$await->(qr/got two/, 'what would stop it does not');
	syswrite $master, "\cC";
	$await->(qr/code 130/, 'Ctrl-C reaches it, and the exit code says so');
	syswrite $master, "three\n";
	$await->(qr/shell has three/, 'the terminal is given back');
	is(await_end($run), 0, 'to the group that leaderctl was in');
}

sub read_some
{
	my ($handle) = @_;
	my $ready = '';

	vec($ready, fileno $handle, 1) = 1;
	return if select($ready, undef, undef, 0) < 1;
	return if !sysread $handle, my $bytes, 4096;
	return $bytes;
}

#
# Many candidates, and what the server sees of them
#

# R16, E11: on one host, without a name or with the same one, each is another
# holder; and each takes over from the one before without waiting for its lease to
# run out (N02).
{
	my @runs = map {
		start_leaderctl($node,
			run_args('five', [ 'sh', '-c', 'echo begun; exec sleep 600' ], $_ > 3 ? qw(--name same) : ()))
	} 1 .. 5;

	await_said($_, qr/leader/) for @runs;
	is(scalar(grep { printed($_) =~ /begun/ } @runs), 1, 'P1: one of five leads')
	  if poll_until(sub { grep { printed($_) =~ /begun/ } @runs }, 'one of five to lead');
	my @led;
	while (@led < 5)
	{
		my ($leader) = poll_until(
			sub {
				my ($found) = grep { printed($_) =~ /begun/ && !ended($_) } @runs;
				$found;
			},
			'the next one to lead');
		push @led, $leader;
		kill 'TERM', $leader->{pid};
		await_end($leader);
	}
	is(value($dbh, q{SELECT count(DISTINCT leader) FROM leader_term WHERE election = 'five'}),
		5, 'R16: five holders');
	is(end_reasons('five'), join(' ', ('released') x 5), 'N02: each was released');
}

{
	my $name = "the n\xc3\xa4me";
	my $run = begin(
		'idle',
		[ 'sh', '-c', 'echo begun; exec sleep 600' ],
		options => [ '--name', $name, '--metadata', '{"address": "10.0.0.1:80", "tags": ["a b"]}' ],
		env => { PGAPPNAME => 'leading' });
	my $candidate = start_leaderctl($node, run_args('idle', ['true']), env => { PGAPPNAME => 'waiting' });

	await_said($candidate, qr/the leader is "\Q$name\E \d+ /);
	pass('--name begins the holder\'s name');
	is(value($dbh, q{SELECT metadata = '{"address": "10.0.0.1:80", "tags": ["a b"]}'
		FROM leader_status WHERE election = 'idle'}),
		1, '--metadata');

	# Not in a transaction, whoever looks when; a statement of theirs is short.
	my ($samples, %found) = (0);
	while ($samples++ < 50)
	{
		foreach my $seen (@{
			$dbh->selectall_arrayref(q{SELECT application_name, state, backend_xmin IS NULL AND
				backend_xid IS NULL AND xact_start IS NULL AS nothing FROM pg_stat_activity
				WHERE application_name IN ('leading', 'waiting')}, { Slice => {} })
		})
		{
			$found{"$seen->{application_name} $seen->{state} " . ($seen->{nothing} ? 'without' : 'with')}++;
		}
		usleep(10_000);
	}
	cmp_ok($found{'leading idle without'} // 0, '>', 25, 'A14: a leader is idle, outside any transaction');
	cmp_ok($found{'waiting idle without'} // 0, '>', 25, 'A14: a candidate is, too');
	is(scalar(grep { /idle in transaction/ } keys %found), 0, 'A14: neither keeps a transaction open');

	# K05: who waits for all older transactions does not wait for them.
	$dbh->do('CREATE TABLE indexed (v int)');
	$dbh->do('SET statement_timeout = 60000');
	is(sqlstate($dbh, 'CREATE INDEX CONCURRENTLY ON indexed (v)'), '00000',
		'F09: CREATE INDEX CONCURRENTLY finishes');
	is(value($dbh, q{SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
		WHERE application_name IN ('leading', 'waiting')}),
		0, 'K05: no lock is kept');
	$dbh->do('RESET statement_timeout');

	kill 'TERM', $run->{pid};
	ended_well($candidate, 'idle', 0, 'the candidate\'s turn');
	await_end($run);
}

# A14: limits on idle sessions cost connections, but no leadership.
{
	my %idle = (
		env => {
			PGAPPNAME => 'limited',
			PGOPTIONS => '-c idle_in_transaction_session_timeout=300ms -c idle_session_timeout=300ms'
		});
	my $run = begin('limited', [ 'env', '-u', 'PGOPTIONS', 'sh', '-c', 'echo begun; exec sleep 600' ], %idle);
	my $candidate = start_leaderctl($node, run_args('limited', ['true']), %idle);
	my $log = -s $node->logfile;

	await_said($candidate, qr/the leader is/);
	poll_until(sub { (() = slurp_file($node->logfile, $log) =~ /limited FATAL:  57P05/g) >= 6 },
		'sessions to be ended');
	is(end_reasons('limited'), 'goes on', 'A14: idle_session_timeout does not end a term');
	is(state_of_election('limited'), 'held', 'A14: the lease is held');
	ok(!ended($run) && !ended($candidate), 'A14: both go on');
	is(printed($run), "begun\n", 'A14: the command was not started again');
	kill 'TERM', $run->{pid};
	is(await_end($run), 143, 'A14: told to end');
	ended_well($candidate, 'limited', 0, 'A14: the candidate\'s turn');
}

done_testing();
