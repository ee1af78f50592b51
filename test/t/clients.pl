# Guards docs/clients: each client loop does what its manual says, two processes
# of a kind on one election.
#
# - The leader is frozen between its write and its COMMIT until another one has
#   taken over and written (P3).  When it goes on, its COMMIT is refused with
#   LE001 (P2), and it steps down.
# - When the server does not answer, a leader steps down by its own clock.
# - Told to end, it releases, and another one goes on.
# - What it needs in the database is what docs/clients/README.md shows.
# - Epochs in the protected table never go back.
#
# Leases are short, as they have to run out.  So a leader may lose its lease at
# any time, and what is told here holds also then: the test asks who leads, and
# waits for events.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;

my $docs = "$FindBin::RealBin/../../docs/clients";
my $ttl = '3 s';
my $password = join '', map { ('a' .. 'z')[ rand 26 ] } 1 .. 20;
my $jar = '/usr/share/java/postgresql.jar';

# The distribution's, as its driver is.
my ($python) = grep { -x } '/usr/bin/python3';
$python //= 'python3';

my ($schema) = slurp_file("$docs/README.md") =~ /^```sql\n(.*?)^```$/ms;
$schema =~ s/'closing'/'job'/g;

# How each is started, and what tells whether it can be
my %kinds = (
	psql => { command => [ 'bash', "$docs/psql.sh" ], try => [qw(psql --version)] },
	python => {
		command => [ $python, "$docs/client.py" ],
		try => [ $python, '-c', 'import psycopg' ],
		needs => 'python3-psycopg'
	},
	node => {
		command => [ 'node', "$docs/client.js" ],
		try => [ 'node', '-e', 'require("pg")' ],
		needs => 'node-pg'
	},
	java => {
		command => [ 'java', '-XX:TieredStopAtLevel=1', '-cp', $jar, "$docs/Client.java" ],
		try => [ 'sh', '-c', "test -e $jar && javac --version" ],
		needs => 'libpostgresql-jdbc-java and a JDK'
	});

my $node = new_node('main', conf => "listen_addresses = '127.0.0.1'\n");
my $admin = connect_to($node);

# Nobody else on this machine can connect to the server.
my $hba = $node->data_dir . '/pg_hba.conf';
my $rules = slurp_file($hba);
$rules =~ s/^(host\s.*)\btrust$/$1scram-sha-256/mg;
unlink $hba;
append_to_file($hba, $rules);
$node->reload;

$admin->do('CREATE ROLE workers');
$admin->do("CREATE ROLE $_ LOGIN PASSWORD '$password' IN ROLE workers") for 'one', 'two';

#
# Processes
#

my @groups;

# A process group of its own, as psql.sh has children.
sub start_client
{
	my ($kind, $role) = @_;
	my $output = PostgreSQL::Test::Utils::tempdir_short() . '/output';
	my $pid = fork() // die "fork: $!";

	if ($pid == 0)
	{
		setpgrp(0, 0);
		open(STDIN, '<', '/dev/null');
		open(STDOUT, '>', $output);
		open(STDERR, '>&', \*STDOUT);
		@ENV{qw(PGHOST PGPORT PGDATABASE PGUSER PGPASSWORD)} =
		  ('127.0.0.1', $node->port, $kind, $role, $password);
		delete $ENV{PGAPPNAME};
		{
			no warnings 'exec';
			exec @{ $kinds{$kind}{command} }, 'job', $ttl;
		}
		POSIX::_exit(127);
	}
	push @groups, $pid;
	return { kind => $kind, role => $role, pid => $pid, output => $output };
}

sub output { return -e $_[0]->{output} ? slurp_file($_[0]->{output}) : ''; }

# Waits for a line, after so many characters of output.
sub await_line
{
	my ($client, $pattern, $from) = @_;
	return poll_until(
		sub {
			die "$client->{kind} has ended:\n" . output($client)
			  if !$client->{ended} && waitpid($client->{pid}, POSIX::WNOHANG()) > 0;
			substr(output($client), $from // 0) =~ $pattern;
		},
		"$client->{kind} to say $pattern");
}

sub group_states
{
	my ($group) = @_;
	my @states;

	foreach my $file (glob '/proc/[0-9]*/stat')
	{
		open(my $fh, '<', $file) or next;
		my ($state, $of) = (<$fh> // '') =~ /^.*\) (\S) \d+ (\d+) / or next;
		push @states, $state if $of == $group && $state !~ /[ZX]/;
	}
	return @states;
}

sub stop_group
{
	my ($client) = @_;
	kill 'STOP', -$client->{pid};
	poll_until(sub { !grep { $_ ne 'T' } group_states($client->{pid}) }, 'processes to stop');
	return;
}

sub continue_group { return kill 'CONT', -$_[0]->{pid}; }

END
{
	kill 'KILL', -$_ for @groups;
}

#
# What is asked of the server
#

sub work_of
{
	my ($database, $epoch) = @_;
	return value($database, 'SELECT count(*) FROM work WHERE epoch = ?', $epoch);
}

sub newest { return value($_[0], 'SELECT coalesce(max(epoch), 0) FROM work'); }

sub await_newer
{
	my ($database, $epoch) = @_;
	return poll_until(sub { newest($database) > $epoch }, 'work of a newer term');
}

# Stops a leader in the middle of its transaction, whose epoch is answered.
sub freeze_leader
{
	my ($pair) = @_;
	my $where = q{SELECT pid FROM pg_stat_activity WHERE datname = ? AND usename = ?
		AND state = 'idle in transaction' AND query LIKE '%INSERT INTO work%'};
	my ($leader, $epoch);

	poll_until(
		sub {
			foreach my $client (@{ $pair->{clients} })
			{
				next if !value($admin, $where, $pair->{kind}, $client->{role});
				stop_group($client);

				# It was not too late, and its term is still the current one.
				my $status = row($pair->{database},
					q{SELECT epoch FROM leader_status WHERE election = 'job' AND state = 'held'});
				if ($status && defined value($admin, $where, $pair->{kind}, $client->{role})
					&& output($client) =~ /^leading $status->{epoch}\n(?!.*^not leading)/ms)
				{
					($leader, $epoch) = ($client, $status->{epoch});
					return 1;
				}
				continue_group($client);
			}
			return 0;
		},
		"$pair->{kind}: a leader at work");
	return ($leader, $epoch);
}

# The one that says it leads, and by which epoch
sub await_leader
{
	my ($pair) = @_;
	my ($leader, $epoch);

	poll_until(
		sub {
			foreach my $client (grep { !$_->{ended} } @{ $pair->{clients} })
			{
				my ($last) = output($client) =~ /.*^((?:not )?leading.*)$/ms;
				next if ($last // '') !~ /^leading (\d+)$/;
				($leader, $epoch) = ($client, $1);
				return work_of($pair->{database}, $epoch);
			}
			return 0;
		},
		"$pair->{kind}: a leader");
	return ($leader, $epoch);
}

#
# Two of each kind
#

my @pairs;

foreach my $kind (sort keys %kinds)
{
  SKIP:
	{
		my ($out, $err);
		skip "$kind: not there: $kinds{$kind}{needs}", 1
		  if !eval { IPC::Run::run($kinds{$kind}{try}, '>', \$out, '2>', \$err) };

		$admin->do("CREATE DATABASE $kind");
		my $database = connect_to($node, $kind);
		$database->do('CREATE EXTENSION leader_election');
		value($database, q{SELECT leader_configure('job', owner => 'workers')});
		$database->do($_) for grep { /\S/ } split /;/, $schema;
		$database->do('GRANT INSERT, SELECT ON work TO workers');
		$database->do('GRANT USAGE ON work_id_seq TO workers');
		push @pairs, { kind => $kind, database => $database };
	}
}
foreach my $pair (@pairs)
{
	$pair->{clients} = [ map { start_client($pair->{kind}, $_) } 'one', 'two' ];
}

# Frozen beyond its lease.  All kinds at once, to wait once only.
foreach my $pair (@pairs)
{
	@$pair{qw(frozen epoch)} = freeze_leader($pair);
	$pair->{work} = work_of($pair->{database}, $pair->{epoch});
	$pair->{from} = length output($pair->{frozen});
}
foreach my $pair (@pairs)
{
	my $kind = $pair->{kind};
	ok(await_newer($pair->{database}, $pair->{epoch}),
		"P3: $kind: another one takes over from a frozen leader and works");
	continue_group($pair->{frozen});
}
foreach my $pair (@pairs)
{
	my $kind = $pair->{kind};
	ok(await_line($pair->{frozen}, qr/^refused LE001\n(?:.*\n)*?not leading$/m, $pair->{from}),
		"P2: $kind: its write is refused, and it steps down");
	is(work_of($pair->{database}, $pair->{epoch}), $pair->{work}, "P2: $kind: nothing of it is there");
}

# The server does not answer, as far as the leader can see: what serves its bids
# is frozen, or for one that connects anew each time, what accepts connections.
sub freeze_bids
{
	my ($pair) = @_;

	($pair->{leader}, $pair->{epoch}) = await_leader($pair);
	$pair->{from} = length output($pair->{leader});
	($pair->{backend}) = @{
		column($admin, q{SELECT pid FROM pg_stat_activity WHERE datname = ? AND usename = ?
			AND query LIKE '%leader_acquire%'}, $pair->{kind}, $pair->{leader}{role}) };
	freeze($pair->{backend}) if $pair->{backend};
	return;
}

# Does it step down by its own clock, and not because its connection gave up or
# its work was refused?  A machine that stands still at the wrong moment hides
# that: then once more.
my @trying = grep { $_->{kind} ne 'psql' } @pairs;

foreach my $try (1 .. 3)
{
	freeze_bids($_) for @trying;
	foreach my $pair (@trying)
	{
		await_line($pair->{leader}, qr/^not leading$/m, $pair->{from});
		$pair->{stepped_down} = $pair->{backend}
		  && substr(output($pair->{leader}), $pair->{from}) =~ /\A(?:leading.*\n)?not leading$/m;
		$pair->{taken_over} = await_newer($pair->{database}, $pair->{epoch});
		thaw($pair->{backend}) if $pair->{backend};
	}
	@trying = grep { !$_->{stepped_down} } @trying or last;
}
foreach my $pair (grep { $_->{kind} ne 'psql' } @pairs)
{
	ok($pair->{stepped_down}, "$pair->{kind}: without an answer it steps down by its own clock")
	  or diag(substr(output($pair->{leader}), $pair->{from}));
	ok($pair->{taken_over}, "$pair->{kind}: another one works");
}
foreach my $pair (grep { $_->{kind} eq 'psql' } @pairs)
{
	my ($leader) = await_leader($pair);
	my $from = length output($leader);

	freeze($node->{_pid});
	ok(await_line($leader, qr/^not leading$/m, $from), 'psql: without an answer it steps down');
	thaw($node->{_pid});
}

# Told to end
foreach my $pair (@pairs)
{
	my $kind = $pair->{kind};
	my ($leader, $epoch);

	# It may just have lost its lease.
	foreach my $try (1 .. 3)
	{
		($leader) = await_leader($pair);
		kill 'TERM', $leader->{pid};
		poll_until(sub { waitpid($leader->{pid}, POSIX::WNOHANG()) > 0 }, "$kind to end");
		is($? >> 8, $kind eq 'java' ? 143 : 0, "$kind: its status");
		$leader->{ended} = 1;
		last if ($epoch) = output($leader) =~ /^released (\d+)$/m;
		push @{ $pair->{clients} }, start_client($kind, $leader->{role});
	}
	ok($epoch, "$kind: it releases") or diag(output($leader)), next;
	is(value($pair->{database}, 'SELECT end_reason FROM leader_term WHERE epoch = ?', $epoch),
		'released', "$kind: at once");
	ok(await_newer($pair->{database}, $epoch), "$kind: another one goes on");
}

# What all of them leave behind
foreach my $pair (@pairs)
{
	my ($kind, $database) = @$pair{qw(kind database)};

	is(value($database, q{SELECT count(*) FROM (SELECT epoch < lag(epoch) OVER (ORDER BY id) AS back FROM work) w
			WHERE back}),
		0, "P2: $kind: epochs never go back");
	is(value($database, q{SELECT count(*) FROM (SELECT FROM work GROUP BY epoch HAVING count(DISTINCT worker) > 1) w}),
		0, "P1: $kind: no two work under one epoch");
	is(value($database, 'SELECT least(count(DISTINCT worker), 2) FROM work'), 2, "$kind: both have worked");
	is(value($database, 'SELECT count(*) FROM work WHERE epoch IS NULL'), 0, "$kind: each row has an epoch");
	kill 'KILL', -$_->{pid} for grep { !$_->{ended} } @{ $pair->{clients} };
}

done_testing();
