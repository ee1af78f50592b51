# The README's examples do what it says, and its table of settings is true.
#
# All blocks marked as sql are fed to one psql session, in order.  The errors
# that come out must be those announced by "-- fails with SQLSTATE".

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $readme = slurp_file(abs_path(dirname(__FILE__) . '/../../README.md'));
my @blocks = $readme =~ /^```sql\n(.*?)^```$/msg;
my $script = join '', @blocks;
my @announced = $script =~ /-- fails with (\w{5})/g;
my %settings = $readme =~ /^\| `(leader_election\.\w+)` \|\s*`?([^`|]*?)`?\s*\|/mg;

my $node = PostgreSQL::Test::Cluster->new('readme');
$node->init;
$node->start;

cmp_ok(scalar @blocks, '>=', 5, 'the README has examples');
cmp_ok(scalar @announced, '>=', 2, 'some of them show an error');

my ($status, $out, $err) = $node->psql('postgres',
	"\\set VERBOSITY sqlstate\n$script",
	on_error_stop => 0);
is($status, 0, 'psql ran the examples to their end');
my @seen = $err =~ /ERROR:  (\w{5})/g;
is("@seen", "@announced", 'every example succeeds or fails as announced')
  or diag($err);
like($out, qr/^f\|node-1 4711 f3a9$/m, 'the loser is told who leads');
is($node->safe_psql('postgres', 'SELECT count(*) FROM ledger'),
	2, 'what the examples wrote with a token is there');

cmp_ok(scalar keys %settings, '>=', 7, 'the README has a table of settings');
is( $node->safe_psql('postgres',
		q{LOAD 'leader_election'; SELECT count(*) FROM pg_settings WHERE name LIKE 'leader_election.%'}),
	scalar keys %settings,
	'the table of settings is complete');
for my $name (sort keys %settings)
{
	is($node->safe_psql('postgres', "LOAD 'leader_election'; SHOW $name"),
		$settings{$name}, "default of $name");
}

done_testing();
