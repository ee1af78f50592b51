# Guards leaderctl's command line: what is wrong with it is said at once, in one
# line, and before any connection is tried (T01, T02, T05, T07, C07, C08); the
# connection is found in all the ways that libpq knows; what is wrong for good
# ends it, and what may pass is waited out without haste (J01, N07); and what it
# says is one line for each message, for people or as JSON.
use strict;
use warnings FATAL => 'all';

use Encode qw(decode);
use FindBin;
use lib "$FindBin::RealBin/../perl";

use IO::Socket::UNIX;
use JSON::PP;
use LeaderElection;
use Leaderctl;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $node = new_node('main', streaming => 1, conf => "log_connections = on\n");
my $dbh = connect_to($node);
my $files = PostgreSQL::Test::Utils::tempdir_short();

sub lines { return scalar(() = $_[0] =~ /\n/g); }

# The command line as a whole, and what it leads to
sub run_it
{
	my ($arguments, %env) = @_;
	return leaderctl($node, $arguments, env => \%env);
}

#
# Help and version
#

{
	foreach my $arguments ([qw(--help)], [qw(run --help)], [qw(-?)], [qw(status --help)])
	{
		my ($code, $printed, $said) = run_it($arguments);

		is($code, 0, "@$arguments: exit code");
		is($said, '', "@$arguments: nothing on stderr");
		like($printed, qr/^Usage:\n  leaderctl run -e ELECTION/m, "@$arguments: the usage");
		foreach my $option (qw(--ttl --session --timeout --on-loss --watchdog --reluctant --kill-after
			--name --metadata --election --json --quiet --log-json --version --host --port --username --dbname))
		{
			like($printed, qr/^ .*\Q$option\E\b/m, "@$arguments: $option") if $arguments->[0] eq '--help';
		}
		is((grep { length > 88 } split /\n/, $printed) + 0, 0, "@$arguments: no line is too long");
	}

	my ($version) =
	  slurp_file("$FindBin::RealBin/../../leader_election.control") =~ /^default_version\s*=\s*'(.*)'/m;
	foreach my $arguments ([qw(--version)], [qw(-V)], [qw(run --version)])
	{
		my ($code, $printed, $said) = run_it($arguments);

		is($printed, "leaderctl (leader_election) $version\n", "@$arguments: the control file's version");
		is("$code$said", '0', "@$arguments: nothing else");
	}
}

#
# What is wrong is said before any connection: here is a server that notices one.
#

my $trap = IO::Socket::UNIX->new(Listen => 20, Local => "$files/.s.PGSQL.5999") or die "socket: $!";
my %trapped = (PGHOST => $files, PGPORT => 5999);

# Several at a time, as they need not be waited for
sub usage_errors
{
	my ($case, @lines) = @_;
	my @runs = map { [ @$_, start_leaderctl($node, $_->[0], env => \%trapped) ] } @lines;

	foreach my $line (@runs)
	{
		my ($arguments, $pattern, $run) = @$line;
		my $words = join ' ', map { s/[^ -~]/?/gr } map { length > 40 ? substr($_, 0, 40) . '...' : "<$_>" } @$arguments;

		my @wrong;
		push @wrong, "exit code $run->{code}" if await_end($run) != 125;
		push @wrong, "said $pattern nowhere" if said($run) !~ $pattern;
		push @wrong, 'not one line' if lines(said($run)) != 1;
		push @wrong, 'points to no help'
		  if said($run) !~ /^leaderctl: error: .*; try "leaderctl --help"$/;
		push @wrong, 'something was run' if printed($run) ne '';
		is(join(', ', @wrong), '', "$case: $words") or diag(said($run));
	}
	return;
}

my @wrong_durations = (
	'0', '0s', '0ms', '-0', '-1', '-1s', '+1', '1e9', 'nan', 'inf', 'infinity', '0x10', '', ' ', 's', '.',
	'1.2.3', '1,5', '5 parsecs', '5ss', '1h30m', '1 s s', 'P1D', "5s\n", '1_000', '0.00001ms',
	'99999999999999999999', '9223372036854775807', '9223372036854775808', '300000y',
	'1' . '0' x 400, '10000d');

foreach my $option (qw(ttl timeout watchdog reluctant kill-after))
{
	usage_errors(
		'T02',
		map { [ [ 'run', '-e', 'any', "--$option", $_, '--', 'true' ], qr/--\Q$option\E must be / ] }
		  @wrong_durations,
		$option eq 'ttl' ? qw(50ms 99ms 0.099 25h 86401s 2d) : ());
}

usage_errors(
	'C07',
	map({ [ [ 'run', '-e', $_, 'true' ], qr/the name of an election must have 1 to 255 bytes, not \d+;/ ] }
		'', 'x' x 256, 'x' x 3000, "\xc3\xa4" x 128),
	map({ [ [ 'run', '-e', $_, 'true' ], qr/the name of an election must not have control characters/ ] }
		"a\nb", "\x01", "\x7f", "tab\t"),
	map({ [ [ 'run', '-e', 'any', '--name', $_, 'true' ], qr/--name must have 1 to \d+ bytes, not \d+;/ ] }
		'', 'x' x 224, 'x' x 3000),
	map({ [ [ 'run', '-e', 'any', '--name', $_, 'true' ], qr/--name must not have control characters/ ] }
		"a\nb", "\x7f"),
	# Also where nothing is run
	map({ [ [ $_, '-e', 'x' x 256 ], qr/must have 1 to 255 bytes, not 256/ ] }
		qw(status watch history depose pause resume)));

usage_errors(
	'usage',
	[ [], qr/the first argument must say what to do/ ],
	[ [qw(-e any)], qr/the first argument must say what to do/ ],
	[ [qw(lead -e any)], qr/there is no command "lead"/ ],
	[ [''], qr/there is no command ""/ ],
	[ [qw(run true)], qr/"run" needs an election/ ],
	[ [qw(run -- true)], qr/"run" needs an election/ ],
	[ [qw(run -e any)], qr/there is no command to run/ ],
	[ [qw(run -e any --)], qr/there is no command to run/ ],
	[ [qw(run -e)], qr/"-e" needs a value/ ],
	[ [qw(run -e any --ttl)], qr/"--ttl" needs a value/ ],
	[ [qw(run -x -e any true)], qr/there is no option "-x"/ ],
	[ [qw(run --frobnicate -e any true)], qr/there is no option "--frobnicate"/ ],
	[ [qw(run --t 5 -e any true)], qr/there is no option "--t"/ ],
	[ [qw(run --quiet=3 -e any true)], qr/"--quiet=3": this option takes no value/ ],
	[ [qw(run --json -e any true)], qr/"run" has no option --json/ ],
	[ [qw(run --on-loss give-up -e any true)], qr/--on-loss must be "restart" or "exit", not "give-up"/ ],
	[ [qw(status --ttl 5s)], qr/"status" has no option --ttl/ ],
	[ [qw(status any)], qr/"any" is too much/ ],
	[ [qw(history)], qr/"history" needs an election/ ],
	[ [qw(depose)], qr/"depose" needs an election/ ],
	[ [qw(pause)], qr/"pause" needs an election/ ],
	[ [qw(resume)], qr/"resume" needs an election/ ],
	map { [ [ qw(history -e any -n), $_ ], qr/--lines must be a number/ ] } qw(0 -1 x 1e3 99999999999), '');

# It can be noticed, and was not.
{
	my $noticed = sub {
		my $ready = '';
		vec($ready, fileno $trap, 1) = 1;
		return scalar select($ready, undef, undef, 0);
	};

	is($noticed->(), 0, 'C08: none of them has tried to connect');
	my $run = start_leaderctl($node, [qw(run -e any true)], env => \%trapped);
	poll_until($noticed, 'a connection');
	pass('which would have been noticed');
	kill 'TERM', $run->{pid};
	is(await_end($run), 143, 'a server that does not answer: told to end');
	close $trap;
	unlink "$files/.s.PGSQL.5999";
}

# What is right at the edge is taken as it was meant.
{
	my %seconds = (
		'100ms' => 0.1, '0.1' => 0.1, '15' => 15, '90 s' => 90, '1.5min' => 90, '2m' => 120, '24h' => 86400,
		'1d' => 86400, '86400s' => 86400, '1234.5ms' => 1.2345);

	my %runs = map {
		$_ => start_leaderctl($node,
			[
				'run', '-e', "ttl $_", '--ttl', $_, '--',
				qw(psql -X -A -t -c),
				"SELECT extract(epoch FROM ttl)::float8 FROM leader_status WHERE election = 'ttl $_'"
			])
	} sort keys %seconds;
	foreach my $ttl (sort keys %seconds)
	{
		my $code = await_end($runs{$ttl});

		# A machine may be too slow for the shortest one, which is lost then.
		is(printed($runs{$ttl}) =~ s/\n.*//sr, $seconds{$ttl}, "--ttl '$ttl'")
		  if $seconds{$ttl} > 1 || $code == 0;
		is($code, 0, "--ttl '$ttl': exit code") if $seconds{$ttl} > 1;
	}

	foreach my $name ('x' x 255, '-e', 'a=b')
	{
		my ($code) = run_it([ 'run', '-e', $name, '--name', 'y' x 223, 'true' ]);

		is($code, 0, 'a name of ' . length($name) . ' bytes');
		is(value($dbh, 'SELECT count(*) FROM leader_term WHERE election = ? AND leader ~ ?',
			$name, '^y{223} \d+ '), 1, 'as it was given');
	}

	# Options end where the command begins.
	my ($code, $printed) = run_it([qw(run -e end printf %s; -e --ttl 0)]);
	is("$code $printed", '0 -e;--ttl;0;', 'what follows the command is its own');
}

#
# How the server is found
#

{
	my $hba = $node->data_dir . '/pg_hba.conf';
	my $rules = slurp_file($hba);

	$dbh->do('CREATE DATABASE other');
	$dbh->do(q{CREATE ROLE alice LOGIN});
	$dbh->do(q{CREATE ROLE locked LOGIN PASSWORD 'pass:word'});
	unlink $hba;
	append_to_file($hba, "local all locked scram-sha-256\n$rules");
	$node->reload;
	poll_until(
		sub { value($dbh, q{SELECT count(*) FROM pg_hba_file_rules WHERE user_name = '{locked}'}) },
		'the rules');
	$node->safe_psql('other', 'CREATE EXTENSION leader_election');
}
my $other = connect_to($node, 'other');

{
	my ($host, $port) = ($node->host, $node->port);
	my $encoded = $host =~ s,/,%2F,gr;

	append_to_file("$files/services", <<"EOS");
[there]
host=$host
port=$port
user=alice
dbname=other
[elsewhere]
host=$files
port=1
user=nobody
dbname=missing
[half]
host=$host
port=$port
user=alice
dbname=missing
EOS
	append_to_file("$files/passwords", "*:*:*:locked:pass\\:word\n");
	chmod 0600, "$files/passwords";

	my %nothing = map { $_ => undef } qw(PGHOST PGPORT PGDATABASE PGUSER);
	my %service = (%nothing, PGSERVICEFILE => "$files/services");
	my %password = (PGUSER => 'locked', PGDATABASE => 'other');
	my %cases = (
		'short options' => [ [ '-h', $host, '-p', $port, qw(-U alice -d other) ], \%nothing ],
		'short options, joined' => [ [ "-h$host", "-p$port", qw(-Ualice -dother) ], \%nothing ],
		'long options' =>
		  [ [ "--host=$host", "--port=$port", qw(--username=alice --dbname=other) ], \%nothing ],
		'a string' => [ [ '-d', "host=$host port=$port user=alice dbname='other'" ], \%nothing ],
		'a string and options' => [ [ '-d', "host=/nowhere port=1 dbname=other", '-h', $host, '-p', $port, '-U', 'alice' ], \%nothing ],
		'a URI' => [ [ '-d', "postgresql://alice\@$encoded:$port/other" ], \%nothing ],
		'a short URI' => [ [ '-d', "postgres:///other?host=$host&port=$port&user=alice" ], \%nothing ],
		'variables' => [ [], { PGUSER => 'alice', PGDATABASE => 'other' } ],
		'variables and an option' => [ [qw(-d other)], { PGUSER => 'alice', PGDATABASE => 'missing' } ],
		'PGSERVICE' => [ [], { %service, PGSERVICE => 'there' } ],
		'a service' => [ [qw(-d service=there)], { %service } ],
		'a service in a URI' => [ [qw(-d postgresql://?service=there)], { %service } ],
		'a service that hides another' => [ [qw(-d service=there)], { %service, PGSERVICE => 'elsewhere' } ],
		'a service, and a database' => [ [qw(-d other)], { %service, PGSERVICE => 'half' } ],
		'a service that hides variables' =>
		  [ [], { %service, PGSERVICE => 'there', PGHOST => '/nowhere', PGPORT => 1, PGDATABASE => 'missing' } ],
		'PGPASSWORD' => [ [], { %password, PGPASSWORD => 'pass:word' } ],
		'PGPASSFILE' => [ [], { %password, PGPASSFILE => "$files/passwords" } ],
		'a password file' => [ [ '-d', "passfile=$files/passwords dbname=other" ], \%password ],
		'a password in a URI' => [ [ '-d', 'postgresql://locked:pass%3Aword@/other' ], {} ],
		'several hosts' => [ [ '-h', "/nowhere,$host", qw(-U alice -d other) ], {} ]);
	my (%runs, %shows);

	foreach my $case (sort keys %cases)
	{
		my ($options, $env) = @{ $cases{$case} };

		$runs{$case} = start_leaderctl($node, [ 'run', '-e', $case, @$options, '--', 'true' ], env => $env);
		await_end($runs{$case});
		$shows{$case} = start_leaderctl($node, [ 'status', '-e', $case, '--json', @$options ], env => $env);
	}
	foreach my $case (sort keys %cases)
	{
		is($runs{$case}{code}, 0, "$case: exit code") or diag(said($runs{$case}));
		is(value($other, 'SELECT owner FROM leader_status WHERE election = ?', $case),
			$case =~ /pass/i ? 'locked' : 'alice', "$case: that role in that database");
		is(await_end($shows{$case}), 0, "$case: status") or diag(said($shows{$case}));
		is(eval { decode_json(printed($shows{$case}))->{election} }, $case, "$case: status shows it");
	}

	# The guard gives back with the same.
	foreach my $case ('a service', 'PGPASSFILE', 'a URI')
	{
		my ($options, $env) = @{ $cases{$case} };
		my $run = start_leaderctl(
			$node,
			[ 'run', '-e', "killed, $case", '--ttl', '1h', @$options, '--', 'sh', '-c', 'echo begun; exec sleep 600' ],
			env => $env);

		await_printed($run, qr/begun/);
		kill 'KILL', $run->{pid};
		poll_until(sub { !marked($run) }, 'the end of the guard');
		is(value($other, 'SELECT state FROM leader_status WHERE election = ?', "killed, $case"),
			'free', "$case: the guard, too");
	}
}

# What libpq cannot make sense of ends it at once, in one line.
{
	my %cases = (
		'an option that does not exist' => [ 'foo=bar', qr/invalid connection option "foo"/ ],
		'an open quote' => [ q{dbname='open}, qr/unterminated quoted string/ ],
		'half a URI' => [ 'postgresql://[::1', qr/IPv6/ ],
		'a port that is no number' => [ 'port=abc', qr/"abc"/ ],
		'a port that is too high' => [ 'port=99999999', qr/99999999/ ],
		'too many ports' => [ 'host=a,b,c port=1,2', qr/2 port numbers to 3 hosts/ ],
		'a missing service' => [ 'service=missing', qr/service/ ],
		'no such mode' => [ 'sslmode=bogus', qr/sslmode/ ],
		'no such attribute' => [ 'target_session_attrs=bogus', qr/target_session_attrs/ ]);

	foreach my $case (sort keys %cases)
	{
		my ($string, $pattern) = @{ $cases{$case} };
		my ($code, $printed, $said) = run_it([ 'run', '-e', 'any', '-d', $string, 'echo', 'begun' ]);

		is($code, 125, "C08: $case");
		like($said, $pattern, "$case: it says so");
		is(lines($said), 1, "$case: in one line");
		is($printed, '', "$case: nothing was run");
	}
}

# What the server refuses for good
{
	$dbh->do(q{SELECT leader_configure('not ours', paused => false)});
	my %cases = (
		'rights' => [ [qw(-U alice -e), 'not ours'], qr/42501/ ],
		'C09: a name that is not UTF-8' => [ [ '-e', "\xff" ], qr/22021/ ],
		'metadata that is no JSON' => [ [ '-e', 'any', '--metadata', '{bad' ], qr/22P02/ ],
		'too much metadata' => [ [ '-e', 'any', '--metadata', '"' . 'x' x 8193 . '"' ], qr/54000/ ]);

	foreach my $case (sort keys %cases)
	{
		my ($options, $pattern) = @{ $cases{$case} };
		my ($code, $printed, $said) = run_it([ 'run', @$options, 'echo', 'begun' ]);

		is($code, 125, "C08: $case");
		like($said, $pattern, "$case: it says so");
		is(lines($said), 1, "$case: in one line");
		is($printed, '', "$case: nothing was run");
	}
}

#
# What may pass is waited out.
#

# A server that is starting up (57P03), until it is there
{
	my $path = "$files/.s.PGSQL.5999";
	my $starting = IO::Socket::UNIX->new(Listen => 20, Local => $path) or die "socket: $!";
	my $run = start_leaderctl($node, [qw(run -e starting true)], env => \%trapped);
	my $refusal = join "\0", qw(SFATAL VFATAL C57P03), 'Mthe database system is starting up', "\0";

	foreach my $attempt (1 .. 3)
	{
		my $client = $starting->accept or die "accept: $!";

		sysread $client, my $packet, 1000;
		syswrite $client, 'E' . pack('N', 4 + length $refusal) . $refusal;
	}
	pass('57P03: it tries again');

	# Its place is taken by the real one.
	symlink $node->host . '/.s.PGSQL.' . $node->port, "$path.new" or die;
	rename "$path.new", $path or die;
	close $starting;
	is(await_end($run), 0, '57P03: it leads when the server is up');
	like(said($run), qr/warning: .*57P03: the database system is starting up/, '57P03: it says what it waits for');
	is(scalar(() = said($run) =~ /57P03/g), 1, '57P03: once');
	unlink $path;
}

# One that is full (53300)
{
	$dbh->do('ALTER ROLE alice CONNECTION LIMIT 0');
	my $run = start_leaderctl($node, [qw(run -e full -U alice true)]);

	await_said($run, qr/warning: .*53300/);
	ok(!ended($run), '53300: it waits');
	$dbh->do('ALTER ROLE alice CONNECTION LIMIT -1');
	is(await_end($run), 0, '53300: until there is room');
	like(said($run), qr/leader with epoch/, '53300: and leads');
}

# One that is no primary (J01), until it is.  Nothing is asked for in haste.
{
	$node->backup('for_standby');
	my $standby = new_standby($node, 'standby', 'for_standby');
	$standby->start;

	my %attempts = (
		'default' => [],
		'any' => [ '-d', 'target_session_attrs=any dbname=postgres' ]);
	my $log = -s $standby->logfile;
	my %runs = map {
		$_ => start_leaderctl($standby, [ 'run', '-e', "standby $_", @{ $attempts{$_} }, '--', 'true' ],
			env => { PGAPPNAME => "to_$_" })
	} sort keys %attempts;
	my $began = now();

	await_said($_, qr/warning: /) for values %runs;
	like(said($runs{default}), qr/read-only|in recovery/, 'J01: it says that this is no primary');
	like(said($runs{any}), qr/25006/, 'J01: likewise if any server will do');
	usleep(2_000_000);
	my $text = slurp_file($standby->logfile, $log);
	my $passed = elapsed($began);

	foreach my $case (sort keys %attempts)
	{
		my $count = () = $text =~ /connection authorized: .*application_name=to_$case/g;

		cmp_ok($count, '>=', 2, "J01: $case: it tries again");
		cmp_ok($count, '<=', 10 + $passed, "J01: $case: not in haste");
		is(lines(said($runs{$case})), 1, "J01: $case: it has said so once");
		ok(!ended($runs{$case}), "J01: $case: it waits");
	}
	my ($code, $printed) = leaderctl($standby, [qw(status --json)]);
	is($code, 0, 'J01: status works there');

	$standby->promote;
	is(await_end($runs{$_}), 0, "J01: $_: it leads once this is the primary") for sort keys %attempts;
	$standby->stop('immediate');
}

#
# What it says
#

# One that waits, leads, is told to end, and releases; and one that cannot
sub all_messages
{
	my ($election, @options) = @_;
	my $decoded = decode('UTF-8', $election);
	my $held = acquire($dbh, $decoded, 'holder "one"', '1 hour');
	my $run = start_leaderctl($node,
		[ 'run', @options, '-e', $election, '--', 'sh', '-c', 'echo begun; exec sleep 600' ]);

	# It has asked, and so will see who leads.
	poll_until(
		sub { value($dbh, q{SELECT count(*) = 1 FROM pg_stat_activity
			WHERE application_name = 'leaderctl' AND query ~ 'leader_acquire' AND state = 'idle'}); },
		'a candidate');
	value($dbh, 'SELECT leader_release(?, ?)', $decoded, $held->{epoch});
	await_printed($run, qr/begun/);
	kill 'TERM', $run->{pid};
	await_end($run);
	my (undef, undef, $failed) =
	  run_it([ 'run', @options, '-e', $election, '--', "$files/missing\n\"" ]);
	return (said($run), $failed);
}

{
	my ($said, $failed) = all_messages('spoken');

	is($said =~ s/\d{10,}/N/gr, <<'EOC', 'each message is a line');
leaderctl: spoken: candidate; the leader is "holder "one""
leaderctl: spoken: leader with epoch N
leaderctl: spoken: stopping the command: Terminated
leaderctl: spoken: lease released
EOC
	like($failed, qr/^leaderctl: spoken: error: could not execute /m, 'errors are told apart');
	($said, $failed) = all_messages('quiet', '--quiet');
	is($said, '', '--quiet: nothing, if nothing is wrong');
	like($failed, qr/^leaderctl: quiet: error: could not execute "[^\n]*\n\z/, '--quiet: what is wrong');
}

{
	my $election = "odd \"name\" \\ \xc3\xa4 {}";
	my ($said, $failed) = all_messages($election, '--log-json');
	my $decoded = decode('UTF-8', $election);
	my %epochs = map { $_ => 1 } @{ column($dbh, 'SELECT epoch FROM leader_term WHERE election = ?', $decoded) };
	my $json = JSON::PP->new->utf8;
	my (%seen, %levels);

	foreach my $line (split /\n/, $said . $failed)
	{
		my $message = eval { $json->decode($line) } or do { fail("--log-json: <$line>"); next };

		$seen{ $message->{event} } = $message;
		$levels{ $message->{level} } = 1;
		like($message->{time}, qr/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/, "--log-json: $message->{event}: time");
		like($message->{level}, qr/^(?:info|warning|error)$/, "--log-json: $message->{event}: level");
		is($message->{election}, $decoded, "--log-json: $message->{event}: election");
		ok(length $message->{message}, "--log-json: $message->{event}: message");
		ok($epochs{ $message->{epoch} // 0 }, "--log-json: $message->{event}: the epoch of a term")
		  if $message->{event} ne 'waiting';
		ok(!exists $message->{epoch}, "--log-json: $message->{event}: no epoch")
		  if $message->{event} eq 'waiting';
	}
	is(join(' ', grep { !$seen{$_} } qw(waiting leader stopping not_started released)),
		'', '--log-json: all events');
	is(join(' ', sort keys %levels), 'error info', '--log-json: their levels');
	is($seen{waiting} && $seen{waiting}{message} =~ /"holder "one""|"[^"]* \d+ [0-9a-f]+"/ ? 1 : 0,
		1, '--log-json: quotes');

	foreach my $arguments (
		[qw(run --log-json -e any --ttl nan true)],
		[qw(run -e any --ttl nan --log-json true)],
		[ qw(run --log-json -e), "\xff", 'true' ],
		[qw(run --log-json true)],
		[qw(run --log-json -e any -d missing true)],
		[qw(status --log-json -d missing)])
	{
		my (undef, undef, $error) = run_it($arguments);
		my $message = eval { $json->decode($error) };

		my $words = join(' ', @$arguments) =~ s/[^ -~]/?/gr;

		is(lines($error), 1, "--log-json: $words: one line");
		is($message && $message->{level}, 'error', "--log-json: $words: an error") or diag($error);
	}
}

done_testing();
