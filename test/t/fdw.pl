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

# The token is first used where no statement begins or ends that could put us
# before postgres_fdw: in an expression of PL/pgSQL, which evaluates simple ones
# by itself, or by a trigger that is deferred to the commit.  The election is
# taken over while the transaction waits for an advisory lock, in an expression
# too.
$dbh->do($_) for split /;;\n/, <<'EOC';
CREATE TABLE trigger_fence (note text, epoch bigint);;
CREATE TABLE trigger_write (note text, epoch bigint);;
CREATE FUNCTION trigger_fence() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    x text;
BEGIN
    x := leader_fence('job', NEW.epoch);
    x := pg_advisory_xact_lock(1);
    RETURN NULL;
END $$;;
CREATE FUNCTION trigger_write() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    x text;
BEGIN
    INSERT INTO protected VALUES (NEW.note);
    x := pg_advisory_xact_lock(1);
    RETURN NULL;
END $$;;
CREATE CONSTRAINT TRIGGER deferred AFTER INSERT ON trigger_fence
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION trigger_fence();;
CREATE CONSTRAINT TRIGGER deferred AFTER INSERT ON trigger_write
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION trigger_write();;
CREATE PROCEDURE by_expression(e bigint, note text) LANGUAGE plpgsql AS $$
DECLARE
    x text;
BEGIN
    INSERT INTO orders VALUES (note);
    x := leader_fence('job', e);
    x := pg_advisory_xact_lock(1);
    COMMIT;
END $$;;
EOC

my $block = <<'EOC';
DO $$
DECLARE
    x text;
BEGIN
    INSERT INTO orders VALUES ('%n');
    x := leader_fence('job', %s);
    x := pg_advisory_xact_lock(1);
    %c
END $$
EOC

# What waits, and what comes before it
my %waiting = (
	'a procedure that commits' => ["CALL by_expression(%s, '%n')"],
	'a block that commits' => [ $block =~ s/%c/COMMIT;/r ],
	'a block' => [ $block =~ s/%c//r ],
	'a deferred trigger that fences' => [
		'COMMIT', 'BEGIN',
		"INSERT INTO orders VALUES ('%n')",
		"INSERT INTO trigger_fence VALUES ('%n', %s)"
	],
	'a deferred trigger that writes' => [
		'COMMIT', 'BEGIN',
		"SET LOCAL leader_election.fence = 'job=%s'",
		"INSERT INTO orders VALUES ('%n')",
		"INSERT INTO trigger_write VALUES ('%n', %s)"
	]);

foreach my $first (sort keys %first)
{
	foreach my $waiting (sort keys %waiting)
	{
		my $case = "$first; $waiting";
		my $session = connect_to($node);
		my ($last, @before) = @{ $waiting{$waiting} };

		run_case($session, $case, @{ $first{$first} }, @before);
		$last =~ s/%s/$current/;
		$last =~ s/%n/$case/;
		$dbh->do('SELECT pg_advisory_lock(1)');
		start_query($session, $last);
		wait_for_state($dbh, backend_pid($session), qr/Lock advisory/);
		value($dbh, 'SELECT leader_release(?, ?)', 'job', $current);
		$current = acquire($dbh, 'job', "after $case", '1 hour')->{epoch};
		$dbh->do('SELECT pg_advisory_unlock(1)');

		my ($state) = finish_query($session);
		is($state, 'LE001', "P2: $case: commit refused");
		is( value($remote, 'SELECT count(*) FROM orders WHERE note = ?', $case),
			0, "P2: $case: nothing committed on the other server");
		$session->disconnect;
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
