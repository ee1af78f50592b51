# On a standby nobody can lead: there the row that the fence reads may be old,
# and locks are not seen.  Every function but those of the views refuses, with a
# hint where to go: also the ones that are added later.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use Test::More;

my $primary = new_node('primary', streaming => 1);
my $dbh = connect_to($primary);

my $term = acquire($dbh, 'held', 'leader', '1 hour');
value($dbh, 'SELECT leader_set_metadata(?, ?, ?)', 'held', $term->{epoch}, '{"at": 1}');
my $released = acquire($dbh, 'released', 'leader', '1 hour');
value($dbh, 'SELECT leader_release(?, ?)', 'released', $released->{epoch});
$dbh->do('CREATE TABLE protected (entry int)');

$primary->backup('backup');
my $node = new_standby($primary, 'standby', 'backup');
$node->start;
$primary->wait_for_catchup($node, 'replay', $primary->lsn('flush'));

my $standby = connect_to($node);
my $epoch = $term->{epoch};
my @calls = (
	"leader_acquire('held', 'leader')",
	"leader_acquire('held', 'other', wait => '5 s')",
	"leader_acquire('new', 'leader')",
	"leader_acquire_session('held')",
	"leader_acquire_session('new', 'leader', '1 hour')",
	"leader_acquire_session('released', 'leader', wait => '5 s')",
	"leader_renew('held', $epoch)",
	"leader_renew_all('leader')",
	"leader_release('held', $epoch)",
	"leader_check('held', $epoch)",
	"leader_set_metadata('held', $epoch, '{}')",
	"leader_configure('held', external => true)",
	"leader_configure('new', external => true)",
	"leader_configure('held', paused => true)",
	"leader_depose('held')",
	"leader_drop('released')",
	"leader_prune('0')",
	"leader_stats_reset('held')",
	"leader_fence('held', $epoch)",
	"leader_protect('protected', 'held')",
	"leader_unprotect('protected')");
foreach my $call (@calls)
{
	is(sqlstate($standby, "SELECT * FROM $call"), '25006', "$call is refused");

	like($standby->errstr, qr/^HINT: .*primary.*target_session_attrs=read-write/m,
		"$call: the hint says where to go");
}

# No function of the interface is missing above: those for the extension's own
# use, and the trigger, are not called by users.
my %called = map { /^(\w+)/ => 1 } @calls;
is_deeply(
	[
		grep { !$called{$_} } @{
			column($standby, <<'EOC') } ], [], 'every function of the interface was tried');
SELECT DISTINCT p.proname
  FROM pg_depend d
  JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'leader_election'
  JOIN pg_proc p ON p.oid = d.objid
 WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass
   AND d.deptype = 'e' AND p.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype)
   AND p.proname NOT LIKE 'leader\_election\_%'
EOC
is(value($standby, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}),
	0, 'a session that was refused holds no lock');

# It does not matter how the session came to a standby.
is(sqlstate($standby, "SET leader_election.fence = 'held=$epoch'"),
	'00000', 'a token may be set');
is(sqlstate($standby, "SELECT leader_fence('held', 1)"),
	'25006', 'a token is not judged, be it old');
is(sqlstate($standby, "SELECT leader_check('unknown', 1)"),
	'25006', 'nor is an election that does not exist');

# The view shows what is replicated and claims no times.
my $seen = row($standby, "SELECT * FROM leader_status WHERE election = 'held'");
is($seen->{leader}, 'leader', 'leader_status: the leader');
is($seen->{epoch}, $epoch, 'leader_status: the epoch');
is($seen->{kind}, 'lease', 'leader_status: the kind');
is($seen->{state}, 'held', 'leader_status: the state');
is($seen->{expires_in}, undef, 'leader_status: no time on a standby');
is($seen->{pid}, undef, 'leader_status: no process on a standby');
is( $seen->{acquired_at},
	value($dbh, "SELECT acquired_at FROM leader_status WHERE election = 'held'"),
	'leader_status: acquired_at as on the primary');
is($seen->{metadata}, '{"at": 1}', 'leader_status: the metadata');
$seen = row($standby, "SELECT * FROM leader_status WHERE election = 'released'");
is($seen->{state}, 'free', 'leader_status: a released election');
is($seen->{leader}, undef, 'leader_status: has no leader');

# So does the one of terms: that of one which goes on has no end.
my $terms = 'SELECT election, epoch, leader, ended_at IS NULL AS goes_on, end_reason
	FROM leader_term ORDER BY epoch';
is_deeply(
	$standby->selectall_arrayref($terms, { Slice => {} }),
	[
		{
			election => 'held',
			epoch => $epoch,
			leader => 'leader',
			goes_on => 1,
			end_reason => undef
		},
		{
			election => 'released',
			epoch => $released->{epoch},
			leader => 'leader',
			goes_on => 0,
			end_reason => 'released'
		}
	],
	'leader_term: the terms');

# What the primary does is seen.
value($dbh, 'SELECT leader_release(?, ?)', 'held', $epoch);
my $next = acquire($dbh, 'held', 'next', '1 hour');
$primary->wait_for_catchup($node, 'replay', $primary->lsn('flush'));
$seen = row($standby, "SELECT * FROM leader_status WHERE election = 'held'");
is($seen->{leader}, 'next', 'leader_status: the next leader');
is($seen->{epoch}, $next->{epoch}, 'leader_status: and its epoch');
is_deeply(
	$standby->selectall_arrayref($terms, { Slice => {} }),
	$dbh->selectall_arrayref($terms, { Slice => {} }),
	'leader_term: as on the primary');

# A lease that has run out on the primary: nothing says so here.
acquire($dbh, 'short', 'leader', '100 ms');
poll_until(
	sub {
		value($dbh, "SELECT state FROM leader_status WHERE election = 'short'") eq 'expired';
	},
	'a lease to run out');
$primary->wait_for_catchup($node, 'replay', $primary->lsn('flush'));
$seen = row($standby, "SELECT * FROM leader_status WHERE election = 'short'");
is($seen->{state}, 'held', 'leader_status: a lease that has run out is as replicated');
is($seen->{expires_in}, undef, 'leader_status: and no time is claimed');

done_testing();
