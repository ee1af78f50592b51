# On a standby nobody can lead: there the row that the fence reads may be old,
# and locks are not seen.  Every function but the view refuses, with a hint
# where to go.
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
foreach my $call (
	"leader_acquire('held', 'leader')",
	"leader_acquire('held', 'other', wait => '5 s')",
	"leader_acquire('new', 'leader')",
	"leader_renew('held', $epoch)",
	"leader_renew_all('leader')",
	"leader_release('held', $epoch)",
	"leader_check('held', $epoch)",
	"leader_set_metadata('held', $epoch, '{}')",
	"leader_fence('held', $epoch)",
	"leader_protect('protected', 'held')",
	"leader_unprotect('protected')")
{
	is(sqlstate($standby, "SELECT * FROM $call"), '25006', "$call is refused");

	like($standby->errstr, qr/^HINT: .*primary/m, "$call: the hint says where to go");
}

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

# What the primary does is seen.
value($dbh, 'SELECT leader_release(?, ?)', 'held', $epoch);
my $next = acquire($dbh, 'held', 'next', '1 hour');
$primary->wait_for_catchup($node, 'replay', $primary->lsn('flush'));
$seen = row($standby, "SELECT * FROM leader_status WHERE election = 'held'");
is($seen->{leader}, 'next', 'leader_status: the next leader');
is($seen->{epoch}, $next->{epoch}, 'leader_status: and its epoch');

done_testing();
