# The view leader_protected, and the fences themselves, while tables come and go.
#
# Guards: whoever looks gets an answer, whatever others do to the tables meanwhile:
# protect them, undo that, make and drop partitions and children.  None of those
# fails either, and in the end all that is left is covered (P2).

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use LeaderElection;
use PostgreSQL::Test::Utils;
use Test::More;

# The library is loaded by the first who needs it.
my $node = new_node('protected');
my $dbh = connect_to($node);
my $rounds = 300;

$dbh->do(<<'EOC');
CREATE TABLE pt (id integer) PARTITION BY LIST (id);
CREATE TABLE kept PARTITION OF pt FOR VALUES IN (-1);
CREATE TABLE top (id integer);
CREATE TABLE heir () INHERITS (top);
CREATE TABLE finished (yes boolean);
EOC

# One line, as a worker reads it.
sub block { return "DO \$\$ BEGIN $_[0] END \$\$" =~ s/\s+/ /gr; }

# Statements over and over
sub repeat
{
	my $statements = join ' ', map { "EXECUTE '$_'; COMMIT;" } @_;
	return block("FOR i IN 1..$rounds LOOP $statements END LOOP;");
}

# Does all of it at the same time, and looks as long as that takes.  The answers
# are the first SQLSTATEs that are not success.
sub together
{
	my ($what, %work) = @_;
	my @names = sort keys %work;
	my @workers = map { spawn_worker($node) } @names;
	my @lookers = map { spawn_worker($node) } 1 .. 2;

	$_->{ask}->(block(<<'EOC')) for @lookers;
WHILE NOT EXISTS (SELECT FROM finished) LOOP
	FOR i IN 1..20 LOOP
		PERFORM count(*) FROM leader_protected;
		COMMIT;
	END LOOP;
END LOOP;
EOC
	$workers[$_]->{ask}->(repeat(@{ $work{ $names[$_] } })) for 0 .. $#names;
	is($workers[$_]->{answer}->(), '00000', "$what: $names[$_]") for 0 .. $#names;
	$dbh->do('INSERT INTO finished VALUES (true)');
	is($_->{answer}->(), '00000', "$what: who looks gets answers") for @lookers;
	$dbh->do('DELETE FROM finished');
	# A later one holds the pipes of those before it.
	$_->{end}->() for reverse(@workers, @lookers);
	return;
}

my %come_and_go = (
	'partitions come and go' => [
		'CREATE TABLE p1 PARTITION OF pt FOR VALUES IN (1) PARTITION BY LIST (id)',
		'CREATE TABLE p11 PARTITION OF p1 DEFAULT',
		'ALTER TABLE pt DETACH PARTITION p1',
		'ALTER TABLE pt ATTACH PARTITION p1 FOR VALUES IN (1)',
		'DROP TABLE p1' ],
	'children come and go' => [
		'CREATE TABLE c1 () INHERITS (heir)',
		'CREATE TABLE c2 () INHERITS (top)',
		'DROP TABLE c1, c2' ]);

value($dbh, "SELECT leader_protect('pt', 'job'), leader_protect('top', 'job')");
together('protected', %come_and_go);

together('protected and not',
	'protection comes and goes' => [
		map { ("SELECT leader_unprotect(''$_'')", "SELECT leader_protect(''$_'', ''job'')") } qw(pt top) ]);

$dbh->do('ALTER EVENT TRIGGER leader_election_cover DISABLE');
together('not covered',
	'children come and go' => $come_and_go{'children come and go'});
$dbh->do('ALTER EVENT TRIGGER leader_election_cover ENABLE');

is_deeply(
	column($dbh, 'SELECT relation::text FROM leader_protected WHERE in_force ORDER BY 1'),
	[qw(heir kept pt top)], 'P2: what is left is covered');
is(sqlstate($dbh, 'TRUNCATE kept'), 'LE002', 'and is judged');

$dbh->disconnect;
$node->stop;
done_testing();
