# LeaderElection: what the TAP tests share.
#
# Sessions are DBI handles rather than background psqls, as tests ask for the
# SQLSTATE of an error and for the process id behind a session, send statements
# without waiting for them, and signal what runs them.
#
# Times are readings of the same clock that the server uses for leases, so a
# test may say "not before"; it may never say "within", as machines can be slow.
package LeaderElection;

use strict;
use warnings FATAL => 'all';

use DBD::Pg ();
use DBI;
use Exporter 'import';
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(clock_gettime usleep CLOCK_MONOTONIC);

our @EXPORT = qw(
  new_node new_standby connect_to backend_pid
  row value column sqlstate
  acquire await_sync_commits renew is_leader elapsed now
  start_query finish_query query_done
  poll_until wait_for_state crash rewrite_conf
  spawn_worker check_tables);

# By name, as tests may have their own of that name:
#	use LeaderElection qw(:DEFAULT draw);
our @EXPORT_OK = qw(draw move_ahead promote kill_postmaster);

# new_node(name, conf => "...", streaming => 1, preload => 1): a running server
# with the extension.
sub new_node
{
	my ($name, %params) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(allows_streaming => $params{streaming} ? 1 : 0);
	$node->append_conf('postgresql.conf', <<EOC);
autovacuum = off
max_connections = 60
log_statement = none
log_error_verbosity = verbose
EOC
	$node->append_conf('postgresql.conf',
		"shared_preload_libraries = 'leader_election'")
	  if $params{preload};
	$node->append_conf('postgresql.conf', $params{conf}) if $params{conf};
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION leader_election');
	return $node;
}

# A streaming standby made from a backup of the primary; not started.
sub new_standby
{
	my ($primary, $name, $backup, $conf) = @_;
	my $standby = PostgreSQL::Test::Cluster->new($name);

	$standby->init_from_backup($primary, $backup, has_streaming => 1);
	$standby->append_conf('postgresql.conf', $conf) if $conf;
	return $standby;
}

# A session.  Errors raise exceptions; statements are sent as they are.
sub connect_to
{
	my ($node, $database, %params) = @_;
	my $dbh = DBI->connect(
		sprintf("dbi:Pg:dbname=%s;host=%s;port=%d;application_name=%s",
			$database // 'postgres', $node->host, $node->port,
			$params{application_name} // 'test'),
		$params{user} // '',
		'',
		{
			AutoCommit => 1,
			AutoInactiveDestroy => 1,
			PrintError => 0,
			PrintWarn => 0,
			RaiseError => 1,
			pg_server_prepare => 0,
		});

	$dbh->{pg_errorlevel} = 2;
	$dbh->do("SET client_min_messages = error");
	return $dbh;
}

sub backend_pid { return $_[0]->{pg_pid}; }

# The first row of a query as a hash, its first column, or a whole column.
sub row
{
	my ($dbh, $sql, @bind) = @_;
	return $dbh->selectrow_hashref($sql, undef, @bind);
}

sub value
{
	my ($dbh, $sql, @bind) = @_;
	my ($value) = $dbh->selectrow_array($sql, undef, @bind);
	return $value;
}

sub column
{
	my ($dbh, $sql, @bind) = @_;
	return $dbh->selectcol_arrayref($sql, undef, @bind);
}

# The SQLSTATE with which a statement ends, '00000' for success.
sub sqlstate
{
	my ($dbh, $sql, @bind) = @_;
	my $ok = eval {
		my $sth = $dbh->prepare($sql);
		$sth->execute(@bind);
		$sth->finish;
		1;
	};

	return $ok ? '00000' : state_of($dbh);
}

sub state_of
{
	my ($dbh) = @_;

	# The driver knows no state for a connection that the server has ended, but
	# its message does.
	return $1 if ($dbh->errstr // '') =~ /^(?:ERROR|FATAL):\s+([0-9A-Z]{5}):/m;
	return $dbh->state || 'no SQLSTATE';
}

# leader_acquire as a hash, times as seconds.
my $times = join ', ', map { "extract(epoch FROM $_)::float8 AS $_" }
  qw(expires_in step_down_after retry_after);

sub acquire
{
	my ($dbh, $election, $holder, $ttl, $wait) = @_;
	return row($dbh,
		"SELECT is_leader, epoch, leader, $times
		   FROM leader_acquire(?, ?, ?::interval, ?::interval)",
		$election, $holder, $ttl, $wait // '0');
}

sub renew
{
	my ($dbh, $election, $epoch) = @_;
	return row($dbh,
		"SELECT is_leader, epoch, leader, $times FROM leader_renew(?, ?)",
		$election, $epoch);
}

sub is_leader { return $_[0]->{is_leader} ? 1 : 0; }

sub now { return clock_gettime(CLOCK_MONOTONIC); }
sub elapsed { return now() - $_[0]; }

# Sends a query and returns at once.
my %statements;

sub start_query
{
	my ($dbh, $sql, @bind) = @_;
	my $sth = $dbh->prepare($sql, { pg_async => DBD::Pg::PG_ASYNC() });

	$sth->execute(@bind);
	$statements{$dbh} = $sth;
	return;
}

sub query_done
{
	my ($dbh) = @_;
	return !eval { !$dbh->pg_ready };
}

# Waits for it.  In list context the SQLSTATE and the rows.
sub finish_query
{
	my ($dbh) = @_;
	my $sth = delete $statements{$dbh};
	my $rows = [];
	my $state = '00000';

	# A lost connection is an end too; whether an answer came before is asked
	# all the same.
	poll_until(sub { !eval { !$dbh->pg_ready } }, 'the end of a statement');
	if (eval { $dbh->pg_result; 1 })
	{
		# Some releases of the driver do not take a cancelled statement for an
		# error.
		$state = $dbh->state || '00000';
		$rows = $sth->fetchall_arrayref({}) if $sth->{NUM_OF_FIELDS};
	}
	else
	{
		$state = state_of($dbh);
	}
	return wantarray ? ($state, $rows) : $state;
}

# Waits for a condition.
sub poll_until
{
	my ($condition, $what) = @_;
	my $until = now() + $PostgreSQL::Test::Utils::timeout_default;

	while (now() < $until)
	{
		my $result = $condition->();
		return $result if $result;
		usleep(20_000);
	}
	die "timed out waiting for $what";
}

# Waits until a backend is seen in the state and with the wait event that match.
sub wait_for_state
{
	my ($dbh, $pid, $pattern) = @_;
	return poll_until(
		sub {
			my $seen = value($dbh,
				"SELECT concat_ws(' ', state, wait_event_type, wait_event)
				   FROM pg_stat_activity WHERE pid = ?", $pid);
			defined $seen && $seen =~ $pattern;
		},
		"process $pid to be $pattern");
}

# Waits until commits wait for synchronous standbys.  The setting alone does not
# tell: commits begin to wait when the checkpointer has taken notice of it.
sub await_sync_commits
{
	my ($node) = @_;
	my ($observer, $probe) = (connect_to($node), connect_to($node));

	poll_until(
		sub {
			my $waits = 0;

			start_query($probe, q{SELECT pg_logical_emit_message(true, 'probe', '')});
			poll_until(
				sub {
					$waits = value($observer,
						q{SELECT coalesce(wait_event = 'SyncRep', false)
							FROM pg_stat_activity WHERE pid = ?},
						backend_pid($probe));
					$waits || query_done($probe);
				},
				'a commit');
			value($observer, 'SELECT pg_cancel_backend(?)', backend_pid($probe))
			  if $waits;
			finish_query($probe);
			$waits;
		},
		'commits to wait for a standby');
	$_->disconnect for $observer, $probe;
	return;
}

# Crashes a server so that what it had not written to its log is lost: nobody
# can write it any more once the processes that would are frozen.  The caller
# has frozen the one that does so in the background (or not, as it likes).
sub crash
{
	my ($node, @frozen) = @_;
	my $pid = $node->{_pid};

	# The server answers the death of a process by the end of all others, and
	# as the tests' configuration says, by its own.
	kill 'KILL', @frozen;
	poll_until(sub { !kill 0, $pid }, 'the end of the server');
	$node->{_pid} = undef;
	unlink $node->data_dir . '/postmaster.pid';
	return;
}

# Replaces settings of a running server.
sub rewrite_conf
{
	my ($node, %settings) = @_;

	$node->adjust_conf('postgresql.conf', $_, $settings{$_}) for keys %settings;
	$node->reload;
	return;
}

# A process of its own, which runs statements as they are sent to it:
#	$worker->{ask}->("COMMIT")	sends one
#	$worker->{answer}->()		waits for "SQLSTATE" or "SQLSTATE value"
#	$worker->{pid}, $worker->{backend}
my @workers;

sub spawn_worker
{
	my ($node, $database) = @_;

	pipe(my $from_test, my $to_worker) or die;
	pipe(my $from_worker, my $to_test) or die;
	$_->autoflush(1) for $to_worker, $to_test;

	my $pid = fork() // die "fork: $!";
	if ($pid == 0)
	{
		close $to_worker;
		close $from_worker;
		eval {
			my $dbh = connect_to($node, $database);
			print $to_test backend_pid($dbh), "\n";
			while (my $sql = <$from_test>)
			{
				chomp $sql;
				my $state = sqlstate($dbh, $sql);
				print $to_test "$state\n";
			}
		};
		# Without the END blocks, which would stop the parent's servers.
		POSIX::_exit(0);
	}
	close $from_test;
	close $to_test;
	push @workers, $pid;

	my $answer = sub {
		my $line = <$from_worker>;
		return 'no answer' unless defined $line;
		chomp $line;
		return $line;
	};
	return {
		pid => $pid,
		backend => $answer->(),
		ask => sub { print $to_worker "$_[0]\n"; },
		answer => $answer,
		run => sub { print $to_worker "$_[0]\n"; return $answer->(); },
		end => sub {
			close $to_worker;
			waitpid $pid, 0;
			@workers = grep { $_ != $pid } @workers;
		},
	};
}

# Begins a new term and ends it again: the answer is its epoch.
my $drawn = 0;

sub draw
{
	my ($dbh, $election) = @_;
	$election //= 'drawn ' . $drawn++;
	my $term = acquire($dbh, $election, 'leader', '1 hour');

	die 'no term' unless is_leader($term);
	value($dbh, 'SELECT leader_release(?, ?)', $election, $term->{epoch});
	return $term->{epoch};
}

# Moves the counter of epochs far ahead of what the wall clock contributes, as
# that is a lower bound which hides what the other rules are for.
sub move_ahead
{
	my ($dbh) = @_;
	value($dbh, "SELECT setval('leader_election_epoch',
		greatest(last_value, 1::bigint << 50)) FROM leader_election_epoch");
	return;
}

# Starts a standby and promotes it; the answer is a session.
sub promote
{
	my ($standby) = @_;
	$standby->start;
	$standby->promote;
	return connect_to($standby);
}

# Kills the process that all others of a server are children of.  They end by
# themselves, and a server can be started only when they have.
sub kill_postmaster
{
	my ($node) = @_;
	my $parent = $node->{_pid};
	my @family = ($parent, grep { (parent_of($_) // 0) == $parent }
		  map { m,^/proc/(\d+)$, } glob '/proc/[0-9]*');

	$node->kill9;
	poll_until(sub { !grep { defined parent_of($_) } @family },
		'the end of the processes of a killed server');

	# Until somebody has waited for the orphan, its number is taken, and the
	# next server would believe its lock files.
	unlink $node->data_dir . '/postmaster.pid',
	  $node->host . '/.s.PGSQL.' . $node->port . '.lock';
	return;
}

# Of a process that has not ended: one that nobody has waited for yet has.
sub parent_of
{
	my ($pid) = @_;
	open(my $file, '<', "/proc/$pid/stat") or return;
	my ($state, $parent) = (<$file> // '') =~ /^.*\) (\S) (\d+) /;

	return defined $state && $state ne 'Z' && $state ne 'X' ? $parent : undef;
}

# The extension writes rows and index entries below the executor.  Every row of
# its tables is whole and in every index, and every index in order; checked on
# a primary, after what might have left them otherwise.
sub check_tables
{
	my ($node, $case, $database) = @_;
	my $dbh = connect_to($node, $database);
	my $tables = <<'EOC';
	WITH ours AS (
		SELECT c.oid, c.reltoastrelid FROM pg_class c
		  JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
			AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
		  JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'leader_election'
		 WHERE c.relkind = 'r')
	SELECT oid FROM ours UNION ALL SELECT reltoastrelid FROM ours WHERE reltoastrelid <> 0
EOC

  SKIP:
	{
		Test::More::skip('amcheck is not installed', 1)
		  if !value($dbh, "SELECT count(*) FROM pg_available_extensions WHERE name = 'amcheck'");
		# There may be no standby to wait for.
		$dbh->do('SET synchronous_commit = local');
		$dbh->do('CREATE EXTENSION IF NOT EXISTS amcheck');

		my ($checked, @problems) = (0);
		foreach my $table (@{ column($dbh, $tables) })
		{
			my $name = value($dbh, 'SELECT ?::regclass', $table);

			push @problems, map { "$name: $_" } @{
				column($dbh, 'SELECT msg FROM verify_heapam(?::oid::regclass, check_toast => true)', $table) };
			foreach my $index (@{
				column($dbh, 'SELECT indexrelid::regclass FROM pg_index WHERE indrelid = ?', $table) })
			{
				$checked++;
				push @problems, $dbh->errstr
				  if sqlstate($dbh, 'SELECT bt_index_parent_check(?::regclass, true, true)', $index) ne '00000';
			}
		}
		push @problems, "only $checked indexes found" if $checked < 3;
		Test::More::is(join("\n", @problems), '', "$case: tables and indexes are whole");
	}
	$dbh->disconnect;
	return;
}

# A test that breaks off leaves no frozen process behind.
END
{
	kill 'KILL', @workers if @workers;
}

# A test that is to fail (see test/mutants) need not go on when it has.
if ($ENV{LEADER_ELECTION_STOP_AT_FAILURE})
{
	require Test2::API;
	Test2::API::test2_stack()->top->listen(
		sub {
			my ($hub, $event) = @_;
			exit 1 if $event->causes_fail;
		});
}

# What follows is for servers that replicate.
push @EXPORT, qw(wal_receiver freeze thaw wal_position wal_records wal_unflushed told);

# The process by which a standby follows, once it does.
sub wal_receiver
{
	my ($standby) = @_;
	my $dbh = connect_to($standby);
	my $pid = poll_until(
		sub {
			value($dbh,
				"SELECT pid FROM pg_stat_wal_receiver WHERE status = 'streaming'");
		},
		'the standby to follow');

	$dbh->disconnect;
	return $pid;
}

# Stops processes such that they have stopped when the call returns.
my %frozen;

sub freeze
{
	foreach my $pid (@_)
	{
		kill 'STOP', $pid or die "process $pid: $!";
		$frozen{$pid} = 1;
		poll_until(
			sub {
				open my $fh, '<', "/proc/$pid/stat" or die "process $pid: $!";
				<$fh> =~ /^.*\) T /;
			},
			"process $pid to stop");
	}
	return;
}

# Lets processes go on; without arguments, all.
sub thaw
{
	my @pids = @_ ? @_ : keys %frozen;

	kill 'CONT', @pids;
	delete @frozen{@pids};
	return;
}

# A frozen process would make its server's end slow.
END
{
	kill 'CONT', keys %frozen;
}

# How much of the log is not on disk yet.  Where the last record has filled a
# page, the next one will follow behind a header, which is not written yet.
sub wal_unflushed
{
	my ($dbh) = @_;
	return value($dbh, <<'EOC');
SELECT CASE WHEN behind IN (24, 40) AND position % 8192 = behind THEN 0
            ELSE behind END
  FROM (SELECT pg_current_wal_insert_lsn() - '0/0' AS position,
               pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn() AS behind) AS log
EOC
}

sub wal_position { return value($_[0], 'SELECT pg_current_wal_insert_lsn()'); }

# What was written to the log since a position: how many records that do
# nothing, and which others, but for those that servers write by themselves.
# Needs the extension pg_walinspect.
sub wal_records
{
	my ($dbh, $from) = @_;
	my $to = wal_position($dbh);
	my %seen = (noop => 0, other => []);

	return \%seen if $to eq $from;

	# What is shown must have been flushed.
	$dbh->do('BEGIN');
	$dbh->do('SET LOCAL synchronous_commit = local');
	value($dbh, q{SELECT pg_logical_emit_message(true, 'flush', '')});
	$dbh->do('COMMIT');
	foreach my $record (@{
			$dbh->selectall_arrayref(
				'SELECT * FROM pg_get_wal_records_info(?, ?)',
				{ Slice => {} }, $from, $to)
		})
	{
		my $type = "$record->{resource_manager} $record->{record_type}";

		$seen{noop}++ if $type eq 'XLOG NOOP';
		push @{ $seen{other} }, $type
		  if $type !~ /^(?:XLOG (?:NOOP|FPI_FOR_HINT|CHECKPOINT_.*)|Standby .*)$/;
	}
	return \%seen;
}

# Asks and notes when: the lease that was told of ends, by the clock of this
# test, neither before "ends_after" nor after "ends_before".
sub told
{
	my ($ask, @arguments) = @_;
	my $asked = now();
	my $answer = $ask->(@arguments);
	my $answered = now();

	$answer->{asked} = $asked;
	$answer->{answered} = $answered;
	if (defined $answer->{expires_in})
	{
		$answer->{ends_after} = $asked + $answer->{expires_in};
		$answer->{ends_before} = $answered + $answer->{expires_in};
	}
	return $answer;
}

1;
