# A takeover from a leader whose 32 connections commit fenced writes without a
# pause.
#
# Guards the queue for the election's lock (the new leader is never starved by
# commits that overlap for ever), and P2 under load: each of those connections
# ends with LE001, and none of their commits lands after the new term, neither
# as others see it nor in the order of the log.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use IPC::Run;
use LeaderElection;
use PostgreSQL::Test::Utils;
use Test::More;

my $clients = 32;
my $rounds = 3;

# Commits that take their time, so that there is always one under way.
my $node = new_node('main', conf => <<'EOC');
fsync = on
commit_delay = 20000
commit_siblings = 1
checkpoint_timeout = '1 h'
wal_keep_size = '1 GB'
EOC
my $dbh = connect_to($node);
my $rival = connect_to($node);

$dbh->do('CREATE TABLE ledger (epoch bigint)');
$dbh->do('CREATE TABLE protected (epoch bigint)');
value($dbh, "SELECT leader_protect('protected', 'job', 'epoch')");
my $log_start = value($dbh, 'SELECT pg_current_wal_insert_lsn()');

my $script = $node->basedir . '/writer.sql';
append_to_file($script, <<'EOC');
BEGIN;
SELECT leader_fence('job', :epoch);
INSERT INTO ledger VALUES (:epoch);
COMMIT;
INSERT INTO protected VALUES (:epoch);
EOC

# Bids, for the longest time there is, and notes the term in the transaction
# that begins it.
my $bid = <<'EOC';
WITH bid AS (SELECT * FROM leader_acquire('job', ?, ?::interval, '10 s'))
INSERT INTO ledger SELECT epoch FROM bid WHERE is_leader RETURNING epoch
EOC

my $written = 'SELECT (SELECT count(*) FROM ledger WHERE epoch = $1)
	+ (SELECT count(*) FROM protected WHERE epoch = $1)';

my $epoch = value($dbh, $bid, 'leader 0', '1 s');
foreach my $round (1 .. $rounds)
{
	my ($out, $err) = ('', '');
	my $writers = IPC::Run::start(
		[
			'pgbench', '-n', '-M', 'prepared', '-c', $clients, '-j', 2,
			'-T', 300, '-D', "epoch=$epoch", '-f', $script,
			'-h', $node->host, '-p', $node->port, 'postgres'
		],
		'>', \$out, '2>', \$err);

	poll_until(
		sub { value($dbh, $written, $epoch) > 10 * $clients },
		'the writers to be at work');

	my $new = value($rival, $bid, "leader $round", '1 s');
	ok(defined $new, "round $round: the new leader is not starved");
	last unless defined $new;
	cmp_ok($new, '>', $epoch, "round $round: P1: its epoch is higher");

	# From now on nothing is added to what the old term has written.
	my $before = value($dbh, $written, $epoch);
	$writers->finish;
	is(value($dbh, $written, $epoch), $before,
		"round $round: P2: no old commit after the new term");

	my @errors = $err =~ /ERROR:\s+(.*)/g;
	is(scalar @errors, $clients, "round $round: P2: every writer has ended");
	is_deeply([ grep { !/^stale epoch/ } @errors ],
		[], "round $round: P2: because its epoch is stale");
	$epoch = $new;
}

# The order of commits is that of the log.
my %epoch_of = map { $_->[0] => $_->[1] } @{
	$dbh->selectall_arrayref(
		'SELECT xmin::text, epoch FROM ledger UNION ALL SELECT xmin::text, epoch FROM protected') };
my $log_end = value($dbh, 'SELECT pg_current_wal_flush_lsn()');
my ($dump) = run_command(
	[
		'pg_waldump', '-p', $node->data_dir . '/pg_wal',
		'-s', $log_start, '-e', $log_end, '-r', 'Transaction'
	]);
my ($last, $commits, $late) = (0, 0, 0);
while ($dump =~ /tx:\s*(\d+),.*desc: COMMIT/g)
{
	my $of = $epoch_of{$1} // next;

	$commits++;
	$late++ if $of < $last;
	$last = $of if $of > $last;
}
is($commits, scalar keys %epoch_of, 'all commits are found in the log');
is($late, 0, 'P2: in the order of the log no epoch follows a higher one');

check_tables($node, 'after the load');

done_testing();
