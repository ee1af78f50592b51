# The extension writes rows and index entries by itself, below the executor.
#
# Guards the indexes of its tables: after many processes have acquired,
# released, published metadata and rolled all of it back, each row is in the
# index of its table, and each index entry in order.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
my $dbh = connect_to($node);

my $script = $node->basedir . '/stress.sql';
append_to_file($script, <<'EOC');
\set n random(1, :elections)
\set what random(1, 6)
\set ttl random(2000, 4000)
BEGIN;
SELECT coalesce(epoch, 0) AS epoch
  FROM leader_acquire('election ' || :n, 'holder ' || :client_id, :ttl * '1 ms'::interval,
       metadata => jsonb_build_object('filler', repeat('x', :n * 20))) \gset
\if :what = 1
ROLLBACK;
\elif :what = 2
SAVEPOINT s;
SELECT leader_set_metadata('election ' || :n, :epoch, NULL);
ROLLBACK TO s;
COMMIT;
\elif :what = 3
SELECT leader_set_metadata('election ' || :n, :epoch, '{"again": true}');
COMMIT;
\elif :what = 4
COMMIT;
\else
COMMIT;
SELECT leader_release('election ' || :n, :epoch);
\endif
EOC

# And a vacuum now and then, so that versions of rows really go; by one client, as
# those who wait for a vacuum keep it from cutting the table short for 5 s.
my $vacuum = $node->basedir . '/vacuum.sql';
append_to_file($vacuum, <<'EOC');
\if :client_id = 0
VACUUM leader_election_state, leader_election_metadata;
\endif
\sleep 50 ms
EOC

# First few elections, under a snapshot that keeps every version of every row, so
# that pages fill up and new versions come to lie on others; then more, without
# it, so that the old ones go.
my $err = '';
foreach my $elections (30, 300)
{
	my $keeper = connect_to($node);

	$keeper->do('BEGIN ISOLATION LEVEL REPEATABLE READ');
	value($keeper, 'SELECT count(*) FROM pg_class') if $elections < 300;
	my (undef, $said) = run_command(
		[
			'pgbench', '-n', '-c', 8, '-j', 2, '-T', 4, '-D', "elections=$elections",
			'-f', "$script\@20", '-f', "$vacuum\@1",
			'-h', $node->host, '-p', $node->port, 'postgres'
		]);
	$err .= $said;
	$keeper->disconnect;
}
cmp_ok(
	value($dbh, q{SELECT n_tup_upd - n_tup_hot_upd FROM pg_stat_user_tables
		WHERE relname = 'leader_election_state'}),
	'>', 0, 'new versions of rows have come to lie on other pages');

# A client that had to wait for too long on a slow machine has been refused,
# or ended for sitting on a lock, as is right.
is_deeply(
	[
		grep { !/could not lock election|terminating connection|server closed/ }
		  $err =~ /(?:ERROR|FATAL):\s+(.*)/g
	],
	[], 'no error under stress');

check_tables($node, 'after the stress');

my $counts = row($dbh, 'SELECT count(*) AS rows, count(DISTINCT election) AS elections,
	count(DISTINCT epoch) AS epochs, sum(terms) AS terms FROM leader_election_state');
cmp_ok($counts->{terms}, '>', 100, 'terms were granted');
is($counts->{rows}, $counts->{elections}, 'each election has one row');
is($counts->{rows}, $counts->{epochs}, 'P1: no epoch is used twice');

# What a scan of the table finds, the index finds.
$dbh->do('SET enable_seqscan = off');
$dbh->do('SET enable_bitmapscan = off');
is( value($dbh,
		"SELECT count(*) FROM leader_election_state WHERE election >= ''"),
	$counts->{rows}, 'all rows are found by the index');

done_testing();
