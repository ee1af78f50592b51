# A fenced transaction that also writes on another server by postgres_fdw,
# which commits there while it commits here.
#
# Guards the order of the two, P2 for what is written elsewhere: the token is
# validated before the remote transaction commits, whichever of the two
# libraries was loaded first, and whatever was used first in the transaction.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use Test::More;

my $node = new_node('main');
my $dbh = connect_to($node);
my $remote;

if (!value($dbh,
		"SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw'"))
{
	plan skip_all => 'postgres_fdw is not installed';
}

$dbh->do('CREATE DATABASE remote');
$remote = connect_to($node, 'remote');
$remote->do('CREATE TABLE orders (note text)');
$dbh->do($_) for split /;\n/, sprintf <<'EOC', $node->host, $node->port;
CREATE EXTENSION postgres_fdw;
CREATE SERVER remote FOREIGN DATA WRAPPER postgres_fdw
    OPTIONS (host '%s', port '%s', dbname 'remote');
CREATE USER MAPPING FOR CURRENT_USER SERVER remote;
CREATE FOREIGN TABLE orders (note text) SERVER remote;
CREATE TABLE local_orders (note text);
CREATE TABLE protected (note text);
SELECT leader_protect('protected', 'job');
EOC

# What a session may do before its transaction, to have a library loaded
my %first = (
	'nothing loaded' => [],
	'extension loaded first' => ["SELECT leader_check('job', 1)"],
	'postgres_fdw loaded first' => ['SELECT count(*) FROM orders'],
	'both loaded, extension first' =>
	  [ "SELECT leader_check('job', 1)", 'SELECT count(*) FROM orders' ],
	'both loaded, postgres_fdw first' =>
	  [ 'SELECT count(*) FROM orders', "SELECT leader_check('job', 1)" ],
	'a fenced transaction before' => [
		'BEGIN', "SELECT leader_fence('job', %s)",
		'SELECT count(*) FROM orders', 'COMMIT'
	]);

# And in it: the remote write before or after the token is first used
my %transaction = (
	'fence, remote write' =>
	  [ "SELECT leader_fence('job', %s)", "INSERT INTO orders VALUES ('%n')" ],
	'remote write, fence' =>
	  [ "INSERT INTO orders VALUES ('%n')", "SELECT leader_fence('job', %s)" ],
	'protected write, remote write' => [
		"SET LOCAL leader_election.fence = 'job=%s'",
		"INSERT INTO protected VALUES ('%n')",
		"INSERT INTO orders VALUES ('%n')"
	],
	'remote write, protected write' => [
		"SET LOCAL leader_election.fence = 'job=%s'",
		"INSERT INTO orders VALUES ('%n')",
		"INSERT INTO protected VALUES ('%n')"
	]);

my $current = acquire($dbh, 'job', 'leader', '1 hour')->{epoch};

sub run_case
{
	my ($session, $name, @sql) = @_;
	foreach my $sql (@sql)
	{
		my $text = $sql =~ s/%s/$current/r;
		$text =~ s/%n/$name/;
		my $state = sqlstate($session, $text);
		die "$name: $text: $state" if $state ne '00000';
	}
	return;
}

foreach my $first (sort keys %first)
{
	foreach my $transaction (sort keys %transaction)
	{
		my $case = "$first; $transaction";
		my $session = connect_to($node);

		run_case($session, $case, @{ $first{$first} });
		run_case($session, $case, 'BEGIN', @{ $transaction{$transaction} });

		# Another takes the election meanwhile.
		value($dbh, 'SELECT leader_release(?, ?)', 'job', $current);
		$current = acquire($dbh, 'job', "after $case", '1 hour')->{epoch};

		is(sqlstate($session, 'COMMIT'), 'LE001', "P2: $case: commit refused");
		is( value($remote, 'SELECT count(*) FROM orders WHERE note = ?', $case),
			0, "P2: $case: nothing committed on the other server");
		is( value($dbh, 'SELECT count(*) FROM protected WHERE note = ?', $case),
			0, "P2: $case: nor here");
	}
}

# And with a token that is current both commit.
foreach my $transaction (sort keys %transaction)
{
	my $session = connect_to($node);

	run_case($session, $transaction, 'BEGIN', @{ $transaction{$transaction} });
	is(sqlstate($session, 'COMMIT'), '00000', "$transaction: a current token commits");
	is( value($remote, 'SELECT count(*) FROM orders WHERE note = ?', $transaction),
		1, "$transaction: on the other server too");
}

done_testing();
