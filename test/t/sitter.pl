# A transaction that has changed an election keeps everybody else from it, so
# it may not sit there: the server ends it (57P01), busy or idle, when the term
# that it acquires would run out, or after 5 s where it does something else.
#
# Guards P3: without it one idle psql would hold up an election for ever.
# And what must not be ended: transactions that gave the lock back, ordinary
# ones in the same session, and a commit that waits for a standby.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use Test::More;

my $node = new_node('main', streaming => 1);
my $dbh = connect_to($node);

my $limit_acquire = 1;    # seconds, the TTL below
my $limit_other = 5;      # seconds

# Every case: the statements that take the lock and keep it.  "busy" is one
# more, which would run for a long time; "held" says that somebody leads before.
# '%s and %s stand for the election and for the epoch of that term.
my @sitters = (
	{
		name => 'idle after acquire',
		limit => $limit_acquire,
		sql => ["SELECT leader_acquire('%s', 'sitter', '1 s')"],
	},
	{
		name => 'busy after acquire',
		limit => $limit_acquire,
		sql => ["SELECT leader_acquire('%s', 'sitter', '1 s')"],
		busy => 'SELECT pg_sleep(600)',
	},
	{
		name => 'busy within the acquiring statement',
		limit => $limit_acquire,
		sql => [],
		busy => "SELECT leader_acquire('%s', 'sitter', '1 s'), pg_sleep(600)",
	},
	{
		name => 'error in a subtransaction after acquire',
		limit => $limit_acquire,
		sql => [
			"SELECT leader_acquire('%s', 'sitter', '1 s')",
			'SAVEPOINT s', 'SELECT 1/0'
		],
	},
	{
		name => 'error in a block of PL/pgSQL after acquire',
		limit => $limit_acquire,
		sql => [
			"SELECT leader_acquire('%s', 'sitter', '1 s')",
			'DO $$ BEGIN PERFORM 1/0; EXCEPTION WHEN division_by_zero THEN NULL; END $$'
		],
	},
	{
		name => 'acquired in a subtransaction that is kept',
		limit => $limit_acquire,
		sql => [
			'SAVEPOINT s',
			"SELECT leader_acquire('%s', 'sitter', '1 s')",
			'RELEASE s', 'SAVEPOINT t', 'SELECT 1/0', 'ROLLBACK TO t'
		],
	},
	{
		name => 'errors in an aborted subtransaction',
		limit => $limit_acquire,
		sql => [
			"SELECT leader_acquire('%s', 'sitter', '1 s')",
			'SAVEPOINT s', 'SELECT 1/0', 'SELECT 1', 'SELECT 1'
		],
	},
	{
		name => 'they are rolled back',
		limit => $limit_acquire,
		sql => [
			"SELECT leader_acquire('%s', 'sitter', '1 s')",
			'SAVEPOINT s', 'SELECT 1/0', 'SELECT 1', 'ROLLBACK TO s'
		],
	},
	{
		name => 'renewing does not help',
		limit => $limit_acquire,
		sql => [
			"SELECT leader_acquire('%s', 'sitter', '1 s')",
			"SELECT leader_acquire('%s', 'sitter', '1 s')"
		],
	},
	{
		name => 'idle after release',
		limit => $limit_other,
		held => 1,
		sql => ["SELECT leader_release('%s', %s)"],
	},
	{
		name => 'busy after release',
		limit => $limit_other,
		held => 1,
		sql => ["SELECT leader_release('%s', %s)"],
		busy => 'SELECT pg_sleep(600)',
	},
	{
		name => 'idle after set_metadata',
		limit => $limit_other,
		held => 1,
		sql => ["SELECT leader_set_metadata('%s', %s, '{}')"],
	},
	{
		name => 'the sooner limit counts',
		limit => $limit_other,
		sql => [
			"SELECT leader_acquire('%s', 'sitter', '1 hour')",
			"SELECT leader_acquire('%s also', 'sitter', '1 hour')",
			"DO \$\$ BEGIN PERFORM leader_release('%s also', s.epoch) FROM leader_status s WHERE election = '%s also'; END \$\$",
		],
	});

foreach my $sitter (@sitters)
{
	my $election = $sitter->{election} = $sitter->{name};
	my $epoch = $sitter->{held}
	  ? acquire($dbh, $election, 'held', '1 hour')->{epoch}
	  : 0;
	my $session = $sitter->{session} = connect_to($node);

	$sitter->{pid} = backend_pid($session);
	$session->do('BEGIN');
	$sitter->{since} = now();
	foreach my $sql (@{ $sitter->{sql} })
	{
		$sql =~ s/%s/$election/ while $sql =~ /'%s/;
		$sql =~ s/%s/$epoch/;
		sqlstate($session, $sql);
	}
	if ($sitter->{busy})
	{
		my $sql = $sitter->{busy};
		$sql =~ s/%s/$election/;
		# On a slow machine it may be too late already.
		eval { start_query($session, $sql); };
	}
}

# Those that are let live; their limit, too, passes while the test waits.
my @survivors;
sub survivor
{
	my ($name, $election, @sql) = @_;
	my $session = connect_to($node);

	foreach my $sql (@sql)
	{
		die "$name: $sql" if sqlstate($session, $sql) ne '00000';
	}
	push @survivors,
	  { name => $name, election => $election, session => $session };
	return;
}

survivor('acquire taken back by ROLLBACK TO', 'taken back',
	'BEGIN', 'SAVEPOINT s',
	"SELECT leader_acquire('taken back', 'survivor', '5 s')",
	'ROLLBACK TO s', 'SELECT 1');
my $epoch = acquire($dbh, 'kept', 'survivor', '1 hour')->{epoch};
survivor('release taken back by ROLLBACK TO', undef,
	'BEGIN', 'SAVEPOINT s', "SELECT leader_release('kept', $epoch)",
	'ROLLBACK TO s');
survivor('an ordinary transaction afterwards', undef,
	"SELECT leader_acquire('before', 'survivor', '5 s')",
	'BEGIN', 'SELECT 1');
survivor('one after a rolled back acquire', undef,
	'BEGIN', "SELECT leader_acquire('rolled back', 'survivor', '5 s')",
	'ROLLBACK', 'BEGIN', 'SELECT 1');
survivor('a losing bid', undef, 'BEGIN',
	"SELECT leader_acquire('kept', 'loser', '5 s')");
survivor('a fenced transaction', undef, 'BEGIN',
	"SELECT leader_fence('kept', $epoch)");

ok(is_leader(acquire($dbh, 'taken back', 'other', '1 hour')),
	'ROLLBACK TO gives the election back while the transaction goes on');
ok(value($dbh, "SELECT leader_set_metadata('kept', $epoch, '{}')"),
	'so it does after a release');

# Each sitter ends, and not before its limit.
my $rival = connect_to($node);
my %waiting = map { $_->{pid} => $_ } @sitters;
eval {
	poll_until(
		sub {
			my %alive =
			  map { $_ => 1 } @{ column($dbh, 'SELECT pid FROM pg_stat_activity') };

			foreach my $pid (grep { !$alive{$_} } keys %waiting)
			{
				my $sitter = delete $waiting{$pid};
				$sitter->{lasted} = elapsed($sitter->{since});
				$sitter->{bid} =
				  acquire($rival, $sitter->{election}, 'next', '1 hour');
			}
			!%waiting;
		},
		'the end of all sitters');
};

foreach my $sitter (@sitters)
{
	my $name = $sitter->{name};

	if (!defined $sitter->{lasted})
	{
		fail("P3: $name: ended");
		value($dbh, 'SELECT pg_terminate_backend(?)', $sitter->{pid});
		next;
	}
	my $state = $sitter->{busy}
	  ? finish_query($sitter->{session})
	  : sqlstate($sitter->{session}, 'SELECT 1');

	is($state, '57P01', "P3: $name: ended");
	cmp_ok($sitter->{lasted}, '>=', $sitter->{limit}, "$name: not before its limit");

	# What it did is undone.  A held term is held again, so its election is
	# not free; but nobody is kept from it.
	if ($sitter->{held})
	{
		is($sitter->{bid}->{leader}, 'held', "$name: the term lives on");
		my $held = row($dbh, 'SELECT * FROM leader_status WHERE election = ?',
			$sitter->{election});
		is( value($dbh, 'SELECT leader_release(?, ?)', $sitter->{election}, $held->{epoch}),
			1, "$name: its holder can release it");
	}
	else
	{
		ok(is_leader($sitter->{bid}), "$name: others can acquire right after");
	}
}

# A commit that waits for a standby is not ended, for as long as it may take.
# Without notifications, whose lock the first commit would keep from the other.
$node->append_conf('postgresql.conf', <<EOC);
synchronous_standby_names = 'nobody'
leader_election.notify = off
EOC
$node->reload;
poll_until(
	sub { value($dbh, 'SHOW synchronous_standby_names') eq 'nobody' },
	'the new configuration');
await_sync_commits($node);

my $releasing = connect_to($node);
my $acquiring = connect_to($node);
my $since = now();
start_query($acquiring, "SELECT leader_acquire('waits', 'committer', '1 s')");
start_query($releasing, 'SELECT leader_release(?, ?)', 'kept', $epoch);
wait_for_state($dbh, backend_pid($_), qr/SyncRep/) for $acquiring, $releasing;
poll_until(sub { elapsed($since) > $limit_other + 0.5 }, 'the limit to pass');
foreach my $session ($acquiring, $releasing)
{
	is( value($dbh, 'SELECT wait_event FROM pg_stat_activity WHERE pid = ?',
			backend_pid($session)),
		'SyncRep', 'a commit that waits for a standby is not ended');
}

$node->adjust_conf('postgresql.conf', 'synchronous_standby_names', "''");
$node->reload;
is(finish_query($_), '00000', 'and succeeds in the end')
  for $acquiring, $releasing;

# By now the limit has passed for them too.
foreach my $survivor (@survivors)
{
	is(sqlstate($survivor->{session}, 'SELECT 1'),
		'00000', "$survivor->{name}: not ended");
}

done_testing();
