# The benchmark works: every section runs with a handful of operations, on what
# is installed, and ends well; one whose operation does not do what it should
# ends badly; and one that is told to end leaves no server and no file.
#
# No figure is judged.  What a section needs and is not there (etcd, DBD::Pg) is
# skipped, with its reason.

use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Copy qw(copy);
use File::Path qw(remove_tree);
use File::Temp qw(tempdir);
use IPC::Run qw(start finish run timeout);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $top = abs_path(dirname(__FILE__) . '/../..');

# A directory of our own shows what is left.  The path of a socket below it must
# not be long.
my $tmp = tempdir('bench.XXXXXX', DIR => length($ENV{TMPDIR} // '') ? $ENV{TMPDIR} : '/tmp', CLEANUP => 1);
local $ENV{TMPDIR} = $tmp;

sub left
{
	opendir(my $dir, $tmp) or die "$tmp: $!";
	return join ' ', grep { !/^\.\.?$/ && $_ ne 'out' } readdir $dir;
}

my ($out, $err);
ok(run([ "$top/bench/run", '--smoke', '--installed', '-o', "$tmp/out" ],
		'<', \undef, '>', \$out, '2>', \$err, timeout(300)),
	'every section runs') or diag($err);
is(left(), '', 'nothing is left');
for my $heading ('Renewal', 'Losing bid', 'Acquire and release', 'Check',
	'Renewals under a snapshot', 'A thousand leases', '20 leases of 5 holders',
	'Fenced transactions', 'A load', 'Hand-over', 'Takeover under load')
{
	like($out, qr/^## \Q$heading\E/m, "there is a table: $heading");
}
like($out, qr/^\| \*\*leader_election\*\* \|(?: [\d.]+ \|){3}/m, 'the summary has figures');
unlike($out, qr/not measured/, 'and all of them');
unlike($out, qr/\| nan|-nan|\| inf/i, 'which are numbers');
for my $row (grep { /^\|/ } split /\n/, slurp_file("$tmp/out/summary.md"))
{
	# Twice the separator: a row that is broken shows as another number of columns.
	ok($row =~ tr/|// == 5 || $row =~ tr/|// == 8, 'a row of the summary is whole')
	  or diag($row);
}
if (grep { -x "$_/etcd" } split /:/, $ENV{PATH})
{
	like($out, qr/^\| etcd 3\.4 \|(?: [\d.]+ \|){3}/m, 'etcd is in it');
}
else
{
	like($out, qr/Without etcd: no etcd here/, 'why etcd is not in it is told');
}

# A renewal that renews nothing is no contender.
system('cp', '-R', "$top/bench", "$tmp/out/bench") == 0 or die 'cp failed';
open(my $script, '>', "$tmp/out/bench/sql/renew.upsert.sql") or die $!;
print $script "SELECT 1;\n";
close $script;
ok(!run([ "$tmp/out/bench/run", '--smoke', '--installed', 'all' ],
		'<', \undef, '>', \$out, '2>', \$err, timeout(300)),
	'a script that does nothing is noticed');
like($err, qr/upsert has not done what renew says/, 'and named');
is(left(), '', 'nothing is left after a failure');

# Told to end while it measures.
my $run = start([ "$top/bench/run", '--smoke', '--installed' ],
	'<', \undef, '>', \$out, '2>', \$err, timeout(300));
$run->pump until $err =~ /measuring: renew/ || !$run->pumpable;
my @servers = glob "$tmp/leader_bench.*/data/postmaster.pid";
is(scalar @servers, 1, 'a server runs meanwhile') or diag($err);
my ($pid) = split /\n/, slurp_file($servers[0]);
$run->signal('TERM');
$run->finish;
is($run->result(0), 143, 'it ends when told to');
is(left(), '', 'nothing is left then');
ok(!kill(0, $pid), 'nor does the server run');

done_testing();
