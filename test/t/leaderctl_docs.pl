# Guards what is written about leaderctl: its manual page, docs/leaderctl.md, the
# README's section, and the files in docs/leaderctl.
#
# - Every example runs, as a role that is neither superuser nor owner of a table,
#   does what it is there for, and leaves no election held.
# - The manual page has exactly the options, events and variables that there are,
#   and the exit codes; it is installed, and of the extension's version.
# - Examples in it can be copied from what is shown, and formatters find no fault.
# - The unit, the entry point and the Deployment: each is sound, leaves enough time for
#   a command to end, and is ready while another one leads (N01).
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use CPAN::Meta::YAML;
use IPC::Run ();
use LeaderElection;
use PostgreSQL::Test::Utils;
use Socket;
use Test::More;

my $top = "$FindBin::RealBin/../..";
my $files = "$top/docs/leaderctl";
my $page = slurp_file("$top/cli/leaderctl.1");
my $guide = slurp_file("$top/docs/leaderctl.md");
my ($section) = slurp_file("$top/README.md") =~ /^## leaderctl\n(.*?)^## /ms;
my %source = map { m,([^/]*)$, ? ($1 => slurp_file($_)) : () } glob "$top/cli/*.[ch]";
my $patience = $PostgreSQL::Test::Utils::timeout_default;
my ($leaderctl) = grep { -x } map { "$_/leaderctl" } split /:/, $ENV{PATH};

# Whatever was set for our own caller
delete @ENV{qw(NOTIFY_SOCKET WATCHDOG_USEC WATCHDOG_PID MAKEFLAGS MAKELEVEL MFLAGS)};

# Each word once, in order
sub words
{
	my %words = map { $_ => 1 } @_;
	return join ' ', sort keys %words;
}

# Runs a command in the bounds of the test: (exit code, stdout, stderr).
sub run_in
{
	my ($directory, @command) = @_;
	my ($out, $err) = ('', '');
	my $run = IPC::Run::start([ 'timeout', '-k', 5, $patience, @command ],
		'<', '/dev/null', '>', \$out, '2>', \$err,
		init => sub { chdir $directory or die "$directory: $!" });

	$run->finish;
	my $status = $? >> 8;
	return ($status, $out, $err);
}

sub slurp_lines { return -e $_[0] ? split /\n/, slurp_file($_[0]) : (); }

#
# The server, and what the examples speak of
#

my $node = new_node('main', conf => "leader_election.default_ttl = '10min'\n");
my $admin = connect_to($node);

$admin->do('CREATE DATABASE app');
$admin->do('CREATE ROLE job LOGIN');
$admin = connect_to($node, 'app');
$admin->do('CREATE EXTENSION leader_election');
$admin->do('CREATE TABLE ledger (amount numeric)');
$admin->do('GRANT INSERT, UPDATE ON ledger TO job');
my ($protect, $fenced) = $guide =~ /^```sql\n(.*?)^```$/msg;
$admin->do($protect);

my $directory = PostgreSQL::Test::Utils::tempdir;
my $bin = "$directory/bin";
mkdir $bin or die "$bin: $!";
append_to_file("$directory/closing.sql", "INSERT INTO ledger VALUES (12.50);\n");
append_to_file("$directory/fenced.sql", $fenced);
append_to_file("$directory/repair.sql", "SELECT 1;\n");

# Programs that note that they were run, and in which term
sub program
{
	my ($name, $script) = @_;
	append_to_file("$bin/$name", <<"EOC");
#!/bin/bash
echo "$name \$* \$LEADER_ELECTION \$LEADER_EPOCH" >>'$directory/log'
$script
EOC
	chmod 0755, "$bin/$name";
	return;
}

program('scheduler', '');
program('nightly-report', '');
program('sleep', '');
program('next-piece', "[ \$(grep -c ^next-piece '$directory/log') -le 2 ]");
program('systemd-notify', <<'EOC') if system('command -v systemd-notify >/dev/null') != 0;
exec perl -MSocket -e 'my ($name) = $ENV{NOTIFY_SOCKET} =~ /^@(.*)/;
	socket(my $s, AF_UNIX, SOCK_DGRAM, 0); send($s, shift, 0, pack_sockaddr_un("\0$name")) or die' "$@"
EOC

# What goes on until it is interrupted is, when it has said something.
append_to_file("$bin/leaderctl", <<"EOC");
#!/bin/bash
[ "\${1-}" = watch ] || exec '$leaderctl' "\$@"
exec 3< <(exec '$leaderctl' "\$@")
read -r -t $patience line <&3 && echo "\$line" && kill \$!
EOC
chmod 0755, "$bin/leaderctl";

@ENV{qw(PATH PGHOST PGPORT PGDATABASE PGUSER)} =
  ("$bin:$ENV{PATH}", $node->host, $node->port, 'app', 'job');
my %callers = %ENV;

#
# The examples
#

# As they are shown, from between .EX and .EE
sub unquoted
{
	my ($text) = @_;
	my %characters = ('-' => '-', '(aq' => q{'}, '(dq' => '"', 'e' => '\\', '&' => '', '(ti' => '~', '(ha' => '^');

	$text =~ s/\\f.//g;
	$text =~ s/\\(\([a-z]{2}|.)/$characters{$1} \/\/ die "what is \\$1?"/ge;
	return $text;
}

my %examples = (
	'manual page' => [ map { unquoted($_) } $page =~ /^\.EX\n(.*?)^\.EE$/msg ],
	'guide' => [ $guide =~ /^```sh\n(.*?)^```$/msg ],
	'README' => [ $section =~ /^```sh\n(.*?)^```$/msg ]);
my %least = ('manual page' => 7, guide => 10, README => 1);

# What must have been left behind by examples with these words
sub ledger { return value($admin, 'SELECT count(*) FROM ledger'); }

sub logged
{
	my ($pattern) = @_;
	return scalar grep { $_ =~ $pattern } slurp_lines("$directory/log");
}

my @checks = (
	[ qr/-f closing\.sql/, sub { ledger() > $_[0]{ledger} }, 'the closing is written' ],
	[ qr/-f fenced\.sql/, sub { ledger() > $_[0]{ledger} }, 'a program with a token of its own writes' ],
	[ qr/-- scheduler/, sub { logged(qr/^scheduler  scheduler \d+$/) }, 'the daemon has run in a term' ],
	[ qr/nightly-report/, sub { logged(qr/^nightly-report  report \d+$/) && logged(qr/^sleep 60 report \d+$/) },
		'the report is made' ],
	[ qr/--watchdog/, sub { logged(qr/^next-piece  worker \d+$/) == 3 }, 'all pieces are done' ],
	[ qr/leaderctl status/, sub { $_[0]{out} =~ /^election +state +leader +epoch/m }, 'who leads' ],
	[ qr/leaderctl watch/, sub { $_[0]{out} =~ /^\S+Z closing: nobody leads/m }, 'what happens' ],
	[ qr/leaderctl history/, sub { $_[0]{out} =~ /^\d+ +\S+ \d+ \w+ .* released$/m }, 'what has happened' ],
	[ qr/leaderctl depose/, sub { $_[0]{err} =~ /closing: (?:deposed|there was no leader)/ }, 'somebody is deposed' ],
	[ qr/leaderctl resume/,
		sub {
			$_[0]{err} =~ /closing: paused.*closing: resumed/s
			  && !value($admin, q{SELECT paused::int FROM leader_status WHERE election = 'closing'});
		},
		'paused, and resumed' ],
	[ qr/leader_configure/,
		sub {
			run_in($directory, $leaderctl, qw(run -e scheduler -- true));
			value($admin, q{SELECT ttl = '30 s' FROM leader_status WHERE election = 'scheduler'});
		},
		'the next term has another TTL' ]);
my %checked;

(undef, undef, my $refused) = run_in($directory, qw(psql -X -v VERBOSITY=sqlstate -f closing.sql));
like($refused, qr/ERROR:  LE002/, 'without leaderctl the closing is refused');

foreach my $document ('README', 'manual page', 'guide')
{
	cmp_ok(scalar @{ $examples{$document} }, '>=', $least{$document}, "$document: there are examples");
	foreach my $example (@{ $examples{$document} })
	{
		my $before = { ledger => ledger() };
		my $script = $example;
		my ($name) = "$document: $example" =~ /^(.*)/;
		my $status;

		# The hosts that it names are this one.
		$script =~ s/db1,db2/@{[$node->host]},@{[$node->host]}/g;
		unlink "$directory/log";
		append_to_file("$directory/log", '');

		# A time-out in an example may be too short for a busy machine.
		foreach my $try (1 .. 5)
		{
			($status, @$before{qw(out err)}) = run_in($directory, 'bash', '-e', '-c', $script);
			last if $status != 124 || $script !~ /--timeout/;
		}
		is($status, 0, $name) or diag($before->{err});
		foreach my $check (grep { $example =~ $_->[0] } @checks)
		{
			ok($check->[1]->($before), "$name: $check->[2]")
			  or diag("$before->{out}$before->{err}", slurp_file("$directory/log"));
			$checked{ $check->[2] } = 1;
		}
	}
}
is(words(keys %checked), words(map { $_->[2] } @checks), 'there is an example of everything');
is(value($admin, q{SELECT count(*) FROM leader_status WHERE state <> 'free'}), 0, 'no election is left held');
is(value($admin, q{SELECT string_agg(DISTINCT end_reason, ' ') FROM leader_term}), 'released',
	'each term was given back');
is(value($admin, q{SELECT string_agg(DISTINCT owner::text, ' ') FROM leader_status}), 'job',
	'elections belong to the role that stands');

#
# The manual page and the program
#

my ($status, $help) = run_in($directory, $leaderctl, '--help');
my ($control) = slurp_file("$top/leader_election.control") =~ /^default_version = '(.*)'$/m;
my (undef, $version) = run_in($directory, $leaderctl, '--version');

is($version, "leaderctl (leader_election) $control\n", 'the version is that of the extension');
like($page, qr/^\.TH LEADERCTL 1 \d{4}-\d\d-\d\d "leader_election \Q$control\E"/m, 'and so is that of the manual page');

# What is between a heading and the next one of its level or above
sub part
{
	my ($heading) = @_;
	my ($text) = $page =~ /^\.S[HS] \Q$heading\E\n(.*?)(?=^\.S[HS] |\z)/ms;

	BAIL_OUT("no \"$heading\" in the manual page") unless defined $text;
	return $text;
}

# What is explained there
sub tags
{
	return map { unquoted($_) } join("\n", map { part($_) } @_) =~ /^\.TP\n(.*)$/mg;
}

my @options = tags('Options of run', 'Other options', 'Connection options');
my ($known) = $source{'options.c'} =~ /known\[\] = \{\n(.*?)^\};/ms;
my @long = $known =~ /\{\{"([\w-]+)",/g;
my @short = $known =~ /'(\w)'/g;
cmp_ok(scalar @long, '>=', 15, 'the program has options');
is(words(map { /--([\w-]+)/g } @options), words(@long), 'the manual page has the options that there are');
is(words($help =~ /--([a-z][\w-]*)/g), words(@long), 'and so has --help');
is(words(map { /(?<![\w-])-(\w)\b/g } @options), words(@short), 'the manual page has their short forms');
is(words($help =~ /^ +-(\w),/mg), words(@short), 'and so has --help');

my ($actions) = $source{'options.c'} =~ /action_names\[\] = \{\n(.*?)^\};/ms;
my @actions = $actions =~ /"(\w+)"/g;
cmp_ok(scalar @actions, '>=', 7, 'the program has commands');
is(words(grep { part('SYNOPSIS') !~ /\b$_\b/ || $help !~ /\b$_\b/ } @actions), '', 'both have its commands');

my @events = map { /"(\w+)"/g }
  map { /\b(?:v?report|report_trouble)\s*\(\s*(?:REPORT_\w+|run),([^,;{]*),/g } values %source;
cmp_ok(scalar @events, '>=', 15, 'there are events');
is(words(map { /(\w+)/g } map { s/^\.\w+ //r } tags('MESSAGES')), words(@events),
	'the manual page has the events of --log-json that there are');

my @watched = ((map { /"(\w+)"/g } $source{'watch.c'} =~ /print_event\(watch, \w+, [^,]*, ([^,;]*),/g),
	$source{'watch.c'} =~ /strcmp\(state, "(\w+)"\)/g);
my ($shown) = part('status, history, watch') =~ /is one of\n(.*)/s;
cmp_ok(scalar @watched, '>=', 6, 'there are events of watch');
is(words(map { /([a-z]+)/g } map { s/^\.BR? //r } grep { /^\.BR? (?!history)/ } split /\n/, $shown),
	words(grep { $_ ne 'held' } @watched), 'the manual page has the events of watch that there are');

my %codes = $source{'report.h'} =~ /^#define EXIT_(\w+)\s+(\d+)$/mg;
is(words(grep { /^\d+$/ } map { s/^\.B //r } tags('EXIT STATUS')), words(0, values %codes),
	'the manual page has the exit codes that there are');
is(words(grep { $help !~ /\b$_\b/ } values %codes), '', 'and so has --help');

# Whether they are what they are said to be; the last ones are the command's.
append_to_file("$directory/not executable", '');
value($admin, q{SELECT leader_configure('paused', paused => true, owner => 'job')});
foreach my $case (
	[ NOT_LEADER => '-e', 'paused', '--timeout', '100ms', '--', 'true' ],
	[ FAILED => '--', 'true' ],
	[ FAILED => '-d', 'template1', '-e', 'code', '--', 'true' ],
	[ NOT_EXECUTABLE => '-e', 'code', '--', './not executable' ],
	[ NOT_FOUND => '-e', 'code', '--', './not there' ],
	[ 7 => '-e', 'code', '--', 'sh', '-c', 'exit 7' ],
	[ 128 + 9 => '-e', 'code', '--', 'sh', '-c', 'kill -KILL $$' ],
	[ 0 => '-e', 'code', '--', 'true' ])
{
	my ($code, @arguments) = @$case;

	is((run_in($directory, $leaderctl, 'run', @arguments))[0], $codes{$code} // $code, "exit code: @$case");
}

# The command's environment: which variables are not as they were
my ($seen_status, $seen) = run_in($directory, $leaderctl, 'run', '-q', '-e', 'variables', '--watchdog', '1min',
	'--', 'env', '-0');
my %seen = map { split /=/, $_, 2 } split /\0/, $seen;
my @given = grep { /^[A-Z_]+$/ && ($seen{$_} // '') ne ($callers{$_} // '') } keys %seen;
is(words(grep { !/^(?:_|PWD|OLDPWD|SHLVL)$/ } @given),
	words(map { /([A-Z_]{2,})/g } map { s/^\.\w+ //r } tags('What the command gets')),
	'the manual page has the variables that the command gets');
my @read = map { /getenv\("(\w+)"\)/g } values %source;
cmp_ok(scalar @read, '>=', 3, 'some variables are read');
is(words(grep { (part('What the command gets') . part('What is read')) !~ /\b$_\b/ } @read), '',
	'the manual page has the variables that are read');

# Where it is installed
chomp(my $mandir = `pg_config --mandir`);
my ($installed) = glob "'$mandir/man1/leaderctl.1'*";
ok($installed, 'the manual page is installed');
is(slurp_file($installed), $page, 'as it is in the sources') if ($installed // '') =~ /1$/;

#
# How it looks
#

sub have { return system("command -v $_[0] >/dev/null 2>&1") == 0; }

# Dashes and quotes of an example must come out as they were written.  Some
# distributions let them, whatever is written.
is(join("\n", grep { /(?<!\\)[-'`^~]/ } $page =~ /^\.EX\n(.*?)^\.EE$/msg), '',
	'characters that formatters change are written by their names');
SKIP:
{
	skip('groff is not installed', 3) if !have('groff');
	my ($code, $shown, $complaints) = run_in($directory, qw(groff -man -Tutf8 -ww -P-c -rLL=100n), "$top/cli/leaderctl.1");

	is($complaints, '', 'groff: no warnings');
	is($code, 0, 'groff: shows the manual page');
	$shown =~ s/.\x08//g;
	my @missing = grep { index($shown, $_) < 0 } map { split /\n/ } @{ $examples{'manual page'} };
	is(join("\n", @missing), '', 'groff: what is shown of the examples can be copied');
}
SKIP:
{
	skip('man is not installed', 1) if !have('man');
	is((run_in($directory, qw(man -l --warnings -P cat), "$top/cli/leaderctl.1"))[2], '', 'man: no warnings');
}
SKIP:
{
	skip('mandoc is not installed', 1) if !have('mandoc');
	is((run_in($directory, qw(mandoc -T lint), "$top/cli/leaderctl.1"))[1], '', 'mandoc: no warnings');
}

# Links: to headings, as they are named on the web, and to files
sub headings
{
	my ($file) = @_;
	return map { my $name = lc; $name =~ s/[^\w\- ]//g; $name =~ tr/ /-/; ($name => 1) }
	  slurp_file($file) =~ /^#+ (.*)$/mg;
}

foreach my $file ("$top/docs/leaderctl.md", "$files/README.md")
{
	my ($folder) = $file =~ m,(.*)/,;

	foreach my $link (slurp_file($file) =~ /\]\((?!http)([^)]*)\)/g)
	{
		my ($to, $heading) = $link =~ /^([^#]*)(?:#(.*))?$/;
		my $target = $to eq '' ? $file : "$folder/$to";
		my %headings = -f $target && defined $heading ? headings($target) : ();

		ok(-e $target && (!defined $heading || $headings{$heading}), "a link leads somewhere: $link");
	}
}

#
# Under a supervisor
#

# In seconds
sub seconds
{
	my ($words) = @_;
	return $words =~ /^(\d+)s?$/ ? $1 : die "\"$words\" is no time";
}

my ($give_back) = $source{'questions.h'} =~ /RELEASE_TIME\s+\((\d+) \* CLOCK_SECOND\)/;
my $unit = slurp_file("$files/leaderctl\@.service");
my %unit = $unit =~ /^(\w+)=(.*)$/mg;
my %conf = slurp_file("$files/scheduler.conf") =~ /^(\w+)=(.*)$/mg;
my $start = $unit{ExecStart};

is($unit{Type}, 'notify', 'unit: its start is notified');
is($unit{KillMode}, 'mixed', 'unit: only leaderctl is told to end');
my ($kill_after) = $start =~ /--kill-after (\S+)/;
cmp_ok(seconds($unit{TimeoutStopSec}), '>', seconds($kill_after) + $give_back,
	'unit: there is time to end and to give the lease back');
SKIP:
{
	skip('systemd-analyze is not installed', 2) if !have('systemd-analyze');

	# It looks for the program.
	my $copy = "$directory/leaderctl\@.service";
	append_to_file($copy, $unit =~ s,/usr/local/bin/leaderctl,$leaderctl,r);
	my ($code, undef, $complaints) = run_in($directory, qw(systemd-analyze verify --man=no), $copy);

	# It cannot work everywhere, so let it show that it does.
	my (undef, undef, $wrong) = do {
		append_to_file("$directory/wrong\@.service", "[Service]\nExecStart=$leaderctl\nTypo=1\n");
		run_in($directory, qw(systemd-analyze verify --man=no), "$directory/wrong\@.service");
	};
	skip('systemd-analyze cannot verify here', 2) if $wrong !~ /Typo/;
	is($code, 0, 'unit: systemd finds it good');
	is($complaints, '', 'unit: without a warning');
}

# What the unit starts, as systemd would
{
	my $name = "leaderctl-test-$$-" . int(rand(1e9));
	my $said = '';

	socket(my $supervisor, AF_UNIX, SOCK_DGRAM, 0) or die "socket: $!";
	bind($supervisor, pack_sockaddr_un("\0$name")) or die "bind: $!";
	$supervisor->blocking(0);
	my $heard = sub {
		while (defined recv($supervisor, my $message, 4096, 0)) { $said .= "$message\n"; }
		return $said;
	};

	# Another one leads.
	my $job = connect_to($node, 'app', user => 'job');
	my $other = acquire($job, 'scheduler', 'another one', '1 hour');
	ok(is_leader($other), 'unit: another one leads');

	$start =~ s/%[iI]/scheduler/g;
	$start =~ s/\$(\w+)/$conf{$1}/g;
	$start =~ s,^/usr/local/bin/leaderctl,$leaderctl,;
	$start =~ s,/usr/local/bin/scheduler$,sh -c "trap 'exit 5' TERM; while :; do /bin/sleep 0.1; done",;
	local @ENV{qw(NOTIFY_SOCKET WATCHDOG_USEC)} = ("\@$name", 200_000);
	my ($out, $err) = ('', '');
	my $run = IPC::Run::start([ 'bash', '-c', "exec $start" ], '<', '/dev/null', '>', \$out, '2>', \$err);

	poll_until(sub { $heard->() =~ /^READY=1$/m && $said =~ /^STATUS=candidate.*another one/m }, 'a candidate to be ready');
	ok(is_leader(renew($job, 'scheduler', $other->{epoch})), 'N01: a candidate is ready while another one leads');
	poll_until(sub { $heard->() =~ /^WATCHDOG=1$/m }, 'a sign of life');
	unlike($said, qr/^STATUS=leader/m, 'unit: it does not lead');
	value($job, 'SELECT leader_release(?, ?)', 'scheduler', $other->{epoch});
	poll_until(sub { $heard->() =~ /^STATUS=leader of "scheduler"/m }, 'it to lead');
	kill 'TERM', $run->{KIDS}[0]{PID};
	$run->finish;
	ok(($? >> 8) == 5 || ($? >> 8) == 128 + 15, 'unit: told to end, its command ends') or diag($? >> 8, $err);
	like($heard->(), qr/^STOPPING=1$/m, 'unit: the supervisor is told so');
	is(value($admin, q{SELECT state FROM leader_status WHERE election = 'scheduler'}), 'free',
		'unit: leadership is given back');
}

# The entry point, in a plain directory
my $entrypoint = "$files/entrypoint.sh";
my ($code, undef, $complaint) = run_in($directory, $entrypoint, 'true');
ok($code != 0 && $complaint =~ /ELECTION/, 'entry point: it says what is missing');
{
	local $ENV{ELECTION} = 'entry';
	local $ENV{TTL} = '20min';
	my ($code, $out, $err) = run_in($directory, $entrypoint, 'sh', '-c', 'echo "$0 $1 $LEADER_ELECTION"; exit 4', 'a  b', '');

	is("$code: $out", "4: a  b  entry\n", 'entry point: it runs its arguments, and ends as they do');
	like($err, qr/^\{.*"event": "leader".*\}$/m, 'entry point: its messages are JSON');
	is(value($admin, q{SELECT ttl = '20min' FROM leader_status WHERE election = 'entry'}), 1,
		'entry point: the lease lasts as long as it was told');

  SKIP:
	{
		my @first = qw(unshare --user --map-root-user --pid --fork --kill-child --mount-proc);

		skip('no namespaces here', 2) if (run_in($directory, @first, 'true'))[0] != 0;
		my ($code, $out) = run_in($directory, @first, $entrypoint, 'sh', '-c',
			q{trap 'exit 3' TERM; cat /proc/1/comm; kill -TERM 1; for i in $(seq 300); do /bin/sleep 0.1; done; exit 9});
		is($out, "leaderctl\n", 'entry point: leaderctl is process 1');
		ok($code == 3 || $code == 128 + 15, 'entry point: and passes signals on') or diag($code);
	}
	is(value($admin, q{SELECT count(*) FROM leader_term WHERE election = 'entry' AND end_reason IS DISTINCT FROM 'released'}),
		0, 'entry point: leadership is given back');
}

# The image has what the build needs.
my $dockerfile = slurp_file("$files/Dockerfile");
my ($make) = $dockerfile =~ m,^RUN (make .*)$,m;
my %copies = reverse $dockerfile =~ /^COPY ([^-]\S*) (\S+)$/mg;
mkdir "$directory/image" or die;
foreach my $to (sort keys %copies)
{
	my $target = "$directory/image$to";

	ok(-e "$top/$copies{$to}", "image: there is $copies{$to}");
	system('mkdir', '-p', $target =~ s,[^/]*$,,r) == 0
	  && system('cp', '-r', "$top/$copies{$to}", $target) == 0 or die 'cp';
}
unlink glob("$directory/image/src/cli/*.o"), "$directory/image/src/cli/leaderctl";
chomp(my $bindir = `pg_config --bindir`);
$make =~ s, /src/, $directory/image/src/,;
$make =~ s,PG_CONFIG=\S+,PG_CONFIG=$bindir/pg_config,;
$ENV{MAKEFLAGS} = '-s -j2';
my ($made, undef, $make_errors) = run_in($directory, 'sh', '-c', $make);
delete $ENV{MAKEFLAGS};
is($made, 0, 'image: leaderctl can be built alone') or diag($make_errors);
is((run_in($directory, "$directory/image/src/cli/leaderctl", '--version'))[1], $version, 'image: and runs');

# The Deployment
my $deployment = CPAN::Meta::YAML->read("$files/deployment.yaml")->[0];
my $pod = $deployment->{spec}{template}{spec};
my ($container) = @{ $pod->{containers} };
my %settings = map { $_->{name} => $_->{value} } @{ $container->{env} };
my $readme = slurp_file("$files/README.md");

is("$deployment->{apiVersion} $deployment->{kind}", 'apps/v1 Deployment', 'Deployment: is one');
is_deeply($deployment->{spec}{selector}{matchLabels}, $deployment->{spec}{template}{metadata}{labels},
	'Deployment: finds its pods');
cmp_ok($deployment->{spec}{replicas}, '>=', 2, 'Deployment: there is more than one candidate');
cmp_ok($pod->{terminationGracePeriodSeconds}, '>', seconds($settings{KILL_AFTER}) + $give_back,
	'Deployment: there is time to end and to give the lease back');
is(words(grep { slurp_file($entrypoint) !~ /^#\t\Q$_\E\t/m } keys %settings), '',
	'Deployment: the entry point knows what is set');
my $secret = $container->{envFrom}[0]{secretRef}{name};
like($readme, qr/create secret generic \Q$secret\E /, 'Deployment: its Secret is made');

# N01: readiness is asked for while another one leads, and without a database.
my @probe = @{ $container->{readinessProbe}{exec}{command} };
my $job = connect_to($node, 'app', user => 'job');
ok(is_leader(acquire($job, 'scheduler', 'another one', '1 hour')), 'Deployment: another one leads');
is((run_in($directory, @probe))[0], 0, 'N01: a candidate is ready while another one leads');
{
	local $ENV{PGHOST} = "$directory/nowhere";
	isnt((run_in($directory, @probe))[0], 0, 'Deployment: without a database it is not ready');
}

# Its examples are for root: they are looked at only.
my @commands = $readme =~ /^```sh\n(.*?)^```$/msg;
cmp_ok(scalar @commands, '>=', 3, 'there are examples for supervisors');
is((run_in($directory, 'sh', '-n', '-c', $_))[0], 0, 'an example is a script') foreach @commands;
is(words(grep { !-e "$top/$_" } map { m,\b(docs/leaderctl/\S+[^\s/]),g } @commands), '', 'the files in them are there');

done_testing();
