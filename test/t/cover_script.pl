# Partitions and children that the script of another extension makes.
#
# Guards: such a script may create, attach and inherit like anybody; what it puts
# below a protected table is covered (P2), goes with its extension, and leaves the
# protection of the others as it was.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use LeaderElection;
use PostgreSQL::Test::Utils;
use Test::More;

my $extensions = do {
	my ($out) = run_command([ 'pg_config', '--sharedir' ]);
	"$out/extension";
};
my @made;

END
{
	unlink @made if @made;
}

sub make_file
{
	my ($name, $text) = @_;

	push @made, "$extensions/$name";
	append_to_file("$extensions/$name", $text);
	return;
}

make_file('covered_parts.control', "default_version = '1.0'\nrelocatable = true\n");
make_file('covered_parts--1.0.sql', <<'EOC');
CREATE TABLE created PARTITION OF public.pt FOR VALUES IN (1);
CREATE TABLE attached (id integer) PARTITION BY LIST (id);
CREATE TABLE leaf PARTITION OF attached DEFAULT;
ALTER TABLE public.pt ATTACH PARTITION attached FOR VALUES IN (2);
CREATE TABLE heir () INHERITS (public.top);
EOC
make_file('covered_parts--1.0--1.1.sql', <<'EOC');
CREATE TABLE joined (id integer);
ALTER TABLE joined INHERIT public.top;
CREATE TABLE added PARTITION OF public.pt FOR VALUES IN (3);
EOC

my $node = new_node('script');
my $dbh = connect_to($node);

$dbh->do(<<'EOC');
CREATE TABLE pt (id integer) PARTITION BY LIST (id);
CREATE TABLE own PARTITION OF pt FOR VALUES IN (9);
CREATE TABLE top (id integer);
CREATE SCHEMA parts;
EOC
value($dbh, "SELECT leader_protect('pt', 'job'), leader_protect('top', 'job')");

# Every member must be refused, by row and by TRUNCATE.
sub refused
{
	my ($table, $id) = @_;

	is(sqlstate($dbh, "INSERT INTO $table (id) VALUES ($id)"), 'LE002', "P2: $table: INSERT is judged");
	is(sqlstate($dbh, "TRUNCATE $table"), 'LE002', "P2: $table: TRUNCATE is judged");
	return;
}

sub in_force
{
	my ($what, @tables) = @_;

	is_deeply(
		column($dbh, 'SELECT relation::text FROM leader_protected WHERE in_force ORDER BY 1'),
		[ sort @tables ], "in force: $what");
	is(value($dbh, 'SELECT count(*) FROM leader_protected WHERE NOT in_force'), 0, "$what: and nothing else");
	return;
}

$dbh->do("CREATE EXTENSION covered_parts SCHEMA parts VERSION '1.0'");
refused('parts.created', 1);
refused('parts.attached', 2);
refused('parts.leaf', 2);
refused('parts.heir', 1);
my @first = map { "parts.$_" } qw(created attached leaf heir);
in_force('what a script has made', qw(pt own top), @first);

$dbh->do("ALTER EXTENSION covered_parts UPDATE TO '1.1'");
refused('parts.joined', 1);
refused('parts.added', 3);
in_force('what an update has added', qw(pt own top), @first, 'parts.joined', 'parts.added');

my $term = acquire($dbh, 'job', 'leader', '1 hour');
$dbh->do("SET leader_election.fence = 'job=$term->{epoch}'");
is(sqlstate($dbh, 'INSERT INTO pt VALUES (1), (2), (3), (9)'), '00000', 'the leader writes');
is(sqlstate($dbh, 'TRUNCATE pt'), '00000', 'and empties');
$dbh->do('RESET leader_election.fence');

# What is part of it is no part of that extension's: undone and done again.
value($dbh, "SELECT leader_unprotect('pt')");
is(sqlstate($dbh, 'INSERT INTO parts.leaf VALUES (2)'), '00000', 'not protected any more');
value($dbh, "SELECT leader_protect('pt', 'job')");
refused('parts.leaf', 2);

is(sqlstate($dbh, 'DROP EXTENSION covered_parts'), '00000', 'what it has made goes with an extension');
in_force('what is left', qw(pt own top));
refused('own', 9);

$dbh->disconnect;
$node->stop;
done_testing();
