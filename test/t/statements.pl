# Guards P2 for every way in which PostgreSQL can change a protected table: what
# happens without a token, with a stale one, and with the current one.
#
# What must happen is read from the tables in docs/fencing.md, so that the manual
# is true; what is done is here, a case for each row.  A row without a case fails,
# and so does a case without a row.
#
# Statements run as a client sends them, each in its own transaction if a case
# has none.  After a refusal the table must be as it was; after a success it must
# have changed, and where rows carry an epoch, each changed one the current.
use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => "max_prepared_transactions = 2\n");
my $directory = $node->basedir;
my $admin = connect_to($node);

# Made anew for each case, so that it is on the path although it does not exist
$admin->do('ALTER DATABASE postgres SET search_path = w, public');
$admin->do('ALTER DATABASE postgres SET client_min_messages = error');
$admin->do($_) for 'CREATE ROLE writer', 'CREATE FOREIGN DATA WRAPPER nothing',
  'CREATE SERVER nothing FOREIGN DATA WRAPPER nothing';
my $dbh = connect_to($node);
my $major = int(value($dbh, 'SHOW server_version_num') / 10000);

# Back to this server
my %has = map { $_ => 1 } @{ column($dbh, 'SELECT name FROM pg_available_extensions') };
if ($has{postgres_fdw})
{
	$dbh->do($_) for 'CREATE EXTENSION postgres_fdw SCHEMA public',
	  sprintf(q{CREATE SERVER loop FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '%s', port '%s', dbname 'postgres')},
		$node->host, $node->port),
	  'CREATE USER MAPPING FOR CURRENT_USER SERVER loop';
}

my $other_session = connect_to($node);
$other_session->do('CREATE TEMP TABLE theirs (id int, shard int, epoch bigint)');
my $theirs = value($other_session, q{SELECT pg_my_temp_schema()::regnamespace || '.theirs'});

#
# Terms and tokens
#

my (%stale, %current);
foreach my $election ('e', 's/1', 's/2')
{
	$stale{$election} = acquire($dbh, $election, 'old', '1 hour')->{epoch};
	value($dbh, 'SELECT leader_release(?, ?)', $election, $stale{$election});
	$current{$election} = acquire($dbh, $election, 'new', '1 hour')->{epoch};
}
# For the text of cases
my %epoch = (
	current => $current{e},
	stale => $stale{e},
	older => $stale{e} - 1,
	unissued => $current{e} + (1 << 40));

sub setting { my %tokens = @_; return join ', ', map { "$_=$tokens{$_}" } sort keys %tokens; }

my %tokens = (
	'no' => '',
	'stale' => setting(%stale),
	'current' => setting(%current),
	'of shard 1' => setting('s/1' => $current{'s/1'}));

my %protection = (
	'plain' => q{'e'},
	'epoch column' => q{'e', 'epoch'},
	'template' => q{'s/{shard}'},
	'template and epoch column' => q{'s/{shard}', 'epoch'});

# What is stored where rows carry an epoch
my %stored = ('epoch column' => $current{e}, 'template and epoch column' => $current{'s/1'});

#
# What cases are made of
#

my $table = 'CREATE TABLE t (id int PRIMARY KEY, shard int NOT NULL DEFAULT 1, v int, epoch bigint);';
my $rows = 'INSERT INTO t (id, shard, v, epoch) VALUES
	(1, 1, 10, :current), (2, 1, 20, :stale), (3, 1, 30, NULL);';
my $partitioned = <<'EOC';
CREATE TABLE t (id int PRIMARY KEY, shard int NOT NULL DEFAULT 1, v int, epoch bigint) PARTITION BY RANGE (id);
CREATE TABLE low PARTITION OF t FOR VALUES FROM (1) TO (100);
CREATE TABLE mid PARTITION OF t FOR VALUES FROM (100) TO (200) PARTITION BY RANGE (id);
CREATE TABLE leaf PARTITION OF mid FOR VALUES FROM (100) TO (200);
CREATE TABLE rest PARTITION OF t DEFAULT;
INSERT INTO t VALUES (1, 1, 10, :current), (2, 1, 20, :stale), (101, 1, 30, NULL);
EOC
my $inherited = $table . <<'EOC';
CREATE TABLE child () INHERITS (t);
INSERT INTO t VALUES (1, 1, 10, :current);
INSERT INTO child VALUES (2, 1, 20, :stale), (3, 1, 30, NULL);
EOC
my $two_shards = 'INSERT INTO t VALUES (1, 1, 10, NULL), (2, 2, 20, NULL);';
my $trigger = <<'EOC';
CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
	NEW.v := coalesce(NEW.v, 0) + 100;
	NEW.epoch := NULL;
	RETURN NEW;
END $$;
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END $$;
EOC

my $foreign_columns = '(id int NOT NULL, shard int NOT NULL, v int, epoch bigint)';
my $range = 'FOR VALUES FROM (200) TO (300)';

sub partitions { my ($run) = @_; return { table => $partitioned, rows => '', run => $run }; }
sub children { my ($run) = @_; return { table => $inherited, rows => '', run => $run }; }
sub later { my ($after, $case) = @_; return { %$case, after => $after }; }
sub unchanged { my ($case) = @_; return { %{ ref $case ? $case : { run => $case } }, same => 1 }; }

my $writes = q{CREATE FUNCTION writes() RETURNS int LANGUAGE plpgsql SET search_path = w AS
	'BEGIN DELETE FROM t WHERE id = 1; RETURN 1; END';};

sub foreign_key
{
	my ($action, $run, %more) = @_;
	return {
		table => $table . "CREATE TABLE p (id int PRIMARY KEY); INSERT INTO p VALUES (1), (2), (3);
			ALTER TABLE t ADD p int DEFAULT 1 REFERENCES p $action;",
		before => 'UPDATE t SET p = 2;',
		run => $run,
		%more };
}

# COPY with what a client sends
sub copy_in
{
	my ($command, @lines) = @_;
	return sub {
		eval {
			$dbh->do($command);
			$dbh->pg_putcopydata("$_\n") for @lines;
			$dbh->pg_putcopyend;
			1;
		} ? '00000' : $dbh->state;
	};
}

# pg_restore says what went wrong, but not by which SQLSTATE.
my %said = ('no fencing token' => 'LE002', 'stale epoch' => 'LE001');

sub restore
{
	my ($dump, $setting, @options) = @_;
	return sub {
		my ($token) = @_;
		local $ENV{PGOPTIONS} = join ' ', $setting,
		  '-c leader_election.fence=' . $token =~ s/ //gr;
		my (undef, $err) = run_command([ 'pg_restore', '--exit-on-error', '--data-only', @options,
			'-d', $node->connstr('postgres'), "$directory/$dump" ]);

		return '00000' if $err eq '';
		my ($text) = grep { $err =~ /$_/ } keys %said;
		return $text ? $said{$text} : $err;
	};
}

my $replica = 'SET session_replication_role = replica';

#
# Cases: by the names of the manual's rows
#
# A case is a statement, or
#	run		statements, or what else returns an SQLSTATE
#	same	it changes nothing
#	watch	the table in which a change is to be seen, if not t
#	role	who runs it
#	table, rows, before		what is there before the table is protected
#	relation	which is protected, if not t
#	replica		as replicated changes are, too
#	after	what has been done to it since
#	needs	an extension
#

my %cases = (
	# Statements
	'INSERT' => 'INSERT INTO t (id, v) VALUES (4, 40)',
	'INSERT of several rows' => 'INSERT INTO t (id, v) VALUES (4, 40), (5, 50)',
	'INSERT … DEFAULT VALUES' => {
		before => 'ALTER TABLE t ALTER id SET DEFAULT 4;',
		run => 'INSERT INTO t DEFAULT VALUES' },
	'INSERT … SELECT' => 'INSERT INTO t (id, v) SELECT n, n FROM generate_series(4, 6) n',
	'INSERT … SELECT of no row' => unchanged('INSERT INTO t (id) SELECT 4 WHERE false'),
	'INSERT … SELECT of ten thousand rows' =>
	  'INSERT INTO t (id, v) SELECT n, n FROM generate_series(4, 10003) n',
	'INSERT … RETURNING' => 'INSERT INTO t (id, v) VALUES (4, 40) RETURNING id, epoch',
	'INSERT … ON CONFLICT DO NOTHING without a conflict' =>
	  'INSERT INTO t (id, v) VALUES (4, 40) ON CONFLICT DO NOTHING',
	'INSERT … ON CONFLICT DO NOTHING with a conflict' =>
	  unchanged('INSERT INTO t (id, v) VALUES (1, 40) ON CONFLICT DO NOTHING'),
	'INSERT … ON CONFLICT DO UPDATE without a conflict' =>
	  'INSERT INTO t (id, v) VALUES (4, 40) ON CONFLICT (id) DO UPDATE SET v = excluded.v',
	'INSERT … ON CONFLICT DO UPDATE with a conflict' =>
	  'INSERT INTO t (id, v) VALUES (1, 40) ON CONFLICT (id) DO UPDATE SET v = excluded.v',
	'INSERT … ON CONFLICT DO UPDATE whose WHERE is false' => unchanged(
		'INSERT INTO t (id, v) VALUES (1, 40) ON CONFLICT (id) DO UPDATE SET v = excluded.v WHERE t.v > 100'),
	'UPDATE' => 'UPDATE t SET v = v + 1',
	'UPDATE of the key' => 'UPDATE t SET id = id + 10',
	'UPDATE that sets a column to what it was' => unchanged('UPDATE t SET v = v WHERE id = 1'),
	'UPDATE that touches no row' => unchanged('UPDATE t SET v = v + 1 WHERE id = 1000'),
	'UPDATE … FROM' => 'UPDATE t SET v = s.v FROM (VALUES (1, 11)) s (id, v) WHERE s.id = t.id',
	'DELETE' => 'DELETE FROM t WHERE id = 1',
	'DELETE that touches no row' => unchanged('DELETE FROM t WHERE id = 1000'),
	'DELETE … USING' => 'DELETE FROM t USING (VALUES (1)) s (id) WHERE s.id = t.id',
	'MERGE, WHEN MATCHED THEN UPDATE' =>
	  'MERGE INTO t USING (VALUES (1)) s (id) ON s.id = t.id WHEN MATCHED THEN UPDATE SET v = 0',
	'MERGE, WHEN MATCHED THEN DELETE' =>
	  'MERGE INTO t USING (VALUES (1)) s (id) ON s.id = t.id WHEN MATCHED THEN DELETE',
	'MERGE, WHEN MATCHED THEN DO NOTHING' => unchanged(
		'MERGE INTO t USING (VALUES (1)) s (id) ON s.id = t.id WHEN MATCHED THEN DO NOTHING'),
	'MERGE, WHEN NOT MATCHED THEN INSERT' =>
	  'MERGE INTO t USING (VALUES (4)) s (id) ON s.id = t.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)',
	'MERGE, WHEN NOT MATCHED THEN DO NOTHING' => unchanged(
		'MERGE INTO t USING (VALUES (4)) s (id) ON s.id = t.id WHEN NOT MATCHED THEN DO NOTHING'),
	'MERGE, WHEN NOT MATCHED BY SOURCE THEN UPDATE (17 and later)' =>
	  'MERGE INTO t USING (VALUES (1)) s (id) ON s.id = t.id WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = 0',
	'MERGE, WHEN NOT MATCHED BY SOURCE THEN DELETE (17 and later)' =>
	  'MERGE INTO t USING (VALUES (1)) s (id) ON s.id = t.id WHEN NOT MATCHED BY SOURCE THEN DELETE',
	'MERGE with all arms' => 'MERGE INTO t USING (VALUES (1), (2), (4)) s (id) ON s.id = t.id
		WHEN MATCHED AND s.id = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET v = 0
		WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, 0)',
	'MERGE of which no arm is reached' => unchanged(
		'MERGE INTO t USING (VALUES (4)) s (id) ON s.id = t.id WHEN MATCHED THEN UPDATE SET v = 0'),
	'COPY … FROM STDIN' => copy_in('COPY t (id, v) FROM STDIN', "4\t40", "5\t50"),
	'COPY … FROM STDIN of no row' => unchanged({ run => copy_in('COPY t (id, v) FROM STDIN') }),
	'COPY … FROM a file' => "COPY t (id, v) FROM '$directory/rows'",
	'COPY … FROM PROGRAM' => "COPY t (id, v) FROM PROGRAM 'echo 4,40' WITH (FORMAT csv)",
	'COPY … FROM STDIN WITH (ON_ERROR ignore) (17 and later)' =>
	  copy_in('COPY t (id, v) FROM STDIN WITH (ON_ERROR ignore)', "4\t40", "5\tfive", "6\t60"),
	'COPY … FROM a file WITH (FREEZE), after a judged or an unjudged TRUNCATE' => {
		run => [
			'BEGIN', 'SET LOCAL leader_election.enforce = off', 'TRUNCATE t',
			'SET LOCAL leader_election.enforce = on',
			"COPY t (id, v) FROM '$directory/rows' WITH (FREEZE)", 'COMMIT' ] },
	'TRUNCATE' => 'TRUNCATE t CASCADE',
	'TRUNCATE of an empty table' => { rows => '', same => 1, run => 'TRUNCATE t' },
	'TRUNCATE … RESTART IDENTITY' => 'TRUNCATE t RESTART IDENTITY',
	'TRUNCATE of several tables' => { before => 'CREATE TABLE other (id int);', run => 'TRUNCATE other, t' },
	'TRUNCATE … CASCADE of a table that it refers to' => foreign_key('', 'TRUNCATE p CASCADE'),

	# By way of something else
	'INSERT through an updatable view' => {
		before => 'CREATE VIEW v AS SELECT id, v FROM t;',
		run => 'INSERT INTO v VALUES (4, 40)' },
	'UPDATE through an updatable view' => {
		before => 'CREATE VIEW v WITH (security_invoker) AS SELECT * FROM t WHERE v > 0;',
		run => 'UPDATE v SET v = v + 1' },
	'DELETE through an updatable view' => {
		before => 'CREATE VIEW inner_v AS SELECT * FROM t; CREATE VIEW v AS SELECT * FROM inner_v WHERE v > 0;',
		run => 'DELETE FROM v' },
	'MERGE through an updatable view (17 and later)' => {
		before => 'CREATE VIEW v AS SELECT id, v FROM t;',
		run => 'MERGE INTO v USING (VALUES (1), (4)) s (id) ON s.id = v.id
			WHEN MATCHED THEN UPDATE SET v = 0 WHEN NOT MATCHED THEN INSERT VALUES (s.id, 0)' },
	'INSERT through a view with CHECK OPTION over a table with row security' => {
		before => 'CREATE VIEW v WITH (security_invoker) AS SELECT id, v FROM t WHERE v > 0 WITH CHECK OPTION;
			ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON t USING (v < 100);
			GRANT USAGE ON SCHEMA w TO writer; GRANT ALL ON t, v TO writer;',
		role => 'writer',
		run => 'INSERT INTO v VALUES (4, 40)' },
	'INSERT through a view with an INSTEAD OF trigger' => {
		before => 'CREATE VIEW v AS SELECT id + 0 AS id FROM t;
			CREATE FUNCTION instead() RETURNS trigger LANGUAGE plpgsql AS
				$$BEGIN INSERT INTO t (id) VALUES (NEW.id); RETURN NEW; END $$;
			CREATE TRIGGER instead INSTEAD OF INSERT ON v FOR EACH ROW EXECUTE FUNCTION instead();',
		run => 'INSERT INTO v VALUES (4)' },
	'INSERT by a rule of another table' => {
		before => 'CREATE TABLE other (id int);
			CREATE RULE r AS ON INSERT TO other DO ALSO INSERT INTO t (id) VALUES (new.id);',
		run => 'INSERT INTO other VALUES (4)' },
	'UPDATE by a rule of another table' => {
		before => 'CREATE TABLE other (id int); INSERT INTO other VALUES (1);
			CREATE RULE r AS ON DELETE TO other DO INSTEAD UPDATE t SET v = 0 WHERE id = old.id;',
		run => 'DELETE FROM other' },
	'SELECT of an SQL function that writes' => {
		before => q{CREATE FUNCTION f() RETURNS int LANGUAGE sql AS
			'INSERT INTO t (id, v) VALUES (4, 40) RETURNING id';},
		run => 'SELECT f()' },
	'SELECT of a PL/pgSQL function that writes' => {
		before => q{CREATE FUNCTION f(i int) RETURNS int LANGUAGE plpgsql AS
			'BEGIN UPDATE t SET v = 0 WHERE id = i; RETURN i; END';},
		run => 'SELECT f(id) FROM t' },
	'SELECT of a SECURITY DEFINER function that writes' => {
		before => q{CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = w AS
			'BEGIN DELETE FROM t; END'; GRANT USAGE ON SCHEMA w TO writer;},
		role => 'writer',
		run => 'SELECT f()' },
	'WITH an INSERT' => 'WITH x AS (INSERT INTO t (id, v) VALUES (4, 40) RETURNING id) SELECT id FROM x',
	'WITH an UPDATE that nobody reads from' => 'WITH x AS (UPDATE t SET v = v + 1) SELECT 1',
	'WITH a DELETE that feeds an INSERT elsewhere' => {
		before => 'CREATE TABLE archive (id int);',
		run => 'WITH x AS (DELETE FROM t WHERE id < 3 RETURNING id) INSERT INTO archive SELECT id FROM x' },
	'COPY of an INSERT … RETURNING to a file' =>
	  "COPY (INSERT INTO t (id, v) VALUES (4, 40) RETURNING id) TO '$directory/copied'",
	'EXPLAIN ANALYZE of an UPDATE' => 'EXPLAIN ANALYZE UPDATE t SET v = v + 1',
	'CREATE TABLE … AS a function that writes' =>
	  { before => $writes, run => 'CREATE TABLE copy AS SELECT writes()' },
	'REFRESH MATERIALIZED VIEW of a function that writes' => {
		before => $writes . 'CREATE MATERIALIZED VIEW m AS SELECT writes() WITH NO DATA;',
		run => 'REFRESH MATERIALIZED VIEW m' },
	'INSERT through a foreign table of postgres_fdw' => {
		needs => 'postgres_fdw',
		before => q{CREATE FOREIGN TABLE f (id int, v int) SERVER loop OPTIONS (schema_name 'w', table_name 't');},
		run => 'INSERT INTO f VALUES (4, 40)' },
	'foreign key, ON DELETE CASCADE' => foreign_key('ON DELETE CASCADE', 'DELETE FROM p WHERE id = 2'),
	'foreign key, ON DELETE SET NULL' => foreign_key('ON DELETE SET NULL', 'DELETE FROM p WHERE id = 2'),
	'foreign key, ON DELETE SET DEFAULT' =>
	  foreign_key('ON DELETE SET DEFAULT', 'DELETE FROM p WHERE id = 2'),
	'foreign key, ON UPDATE CASCADE' =>
	  foreign_key('ON UPDATE CASCADE', 'UPDATE p SET id = 20 WHERE id = 2'),
	'foreign key, ON UPDATE SET NULL' =>
	  foreign_key('ON UPDATE SET NULL', 'UPDATE p SET id = 20 WHERE id = 2'),
	'foreign key, ON DELETE CASCADE of a row that nothing refers to' =>
	  foreign_key('ON DELETE CASCADE', 'DELETE FROM p WHERE id = 3', watch => 'p'),
	'foreign key, DELETE with NO ACTION of a row that nothing refers to' =>
	  foreign_key('', 'DELETE FROM p WHERE id = 3', watch => 'p'),
	'trigger of another table that writes' => {
		before => 'CREATE TABLE other (id int);
			CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS
				$$BEGIN INSERT INTO t (id) VALUES (NEW.id); RETURN NEW; END $$;
			CREATE TRIGGER f BEFORE INSERT ON other FOR EACH ROW EXECUTE FUNCTION f();',
		run => 'INSERT INTO other VALUES (4)' },
	'trigger of another table that writes at COMMIT' => {
		before => 'CREATE TABLE other (id int);
			CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS
				$$BEGIN INSERT INTO t (id) VALUES (NEW.id); RETURN NULL; END $$;
			CREATE CONSTRAINT TRIGGER f AFTER INSERT ON other DEFERRABLE INITIALLY DEFERRED
				FOR EACH ROW EXECUTE FUNCTION f();',
		run => [ 'BEGIN', 'INSERT INTO other VALUES (4)', 'COMMIT' ] },
	'UPDATE … WHERE CURRENT OF a cursor' => {
		run => [
			'BEGIN', 'DECLARE c CURSOR FOR SELECT * FROM t FOR UPDATE', 'FETCH c',
			'UPDATE t SET v = 0 WHERE CURRENT OF c', 'COMMIT' ] },
	'DELETE … WHERE CURRENT OF a cursor' => {
		run => [
			'BEGIN', 'DECLARE c CURSOR FOR SELECT * FROM t', 'FETCH c',
			'DELETE FROM t WHERE CURRENT OF c', 'COMMIT' ] },
	'EXECUTE of a prepared INSERT, with a generic plan' => {
		run => [
			'SET plan_cache_mode = force_generic_plan',
			'PREPARE i (int) AS INSERT INTO t (id, v) VALUES ($1, $1)',
			'EXECUTE i (4)', 'EXECUTE i (5)' ] },
	'DO block' => q{DO 'BEGIN INSERT INTO t (id, v) VALUES (4, 40); UPDATE t SET v = v + 1; END'},
	'DO block that catches the error' =>
	  q{DO 'BEGIN DELETE FROM t; EXCEPTION WHEN OTHERS THEN NULL; END'},
	'CALL of a procedure that commits between its writes' => {
		before => q{CREATE PROCEDURE p() LANGUAGE plpgsql AS
			'BEGIN INSERT INTO t (id) VALUES (4); COMMIT; UPDATE t SET v = 0; COMMIT; DELETE FROM t WHERE id = 1; END';},
		run => 'CALL p()' },
	'write, then PREPARE TRANSACTION' =>
	  { run => [ 'BEGIN', 'UPDATE t SET v = v + 1', q{PREPARE TRANSACTION 'x'} ] },

	# An epoch in the row
	'INSERT, the current one' => 'INSERT INTO t (id, epoch) VALUES (4, :current)',
	'INSERT, a stale one' => 'INSERT INTO t (id, epoch) VALUES (4, :stale)',
	'INSERT, one that was never issued' => 'INSERT INTO t (id, epoch) VALUES (4, :unissued)',
	'INSERT, none' => 'INSERT INTO t (id, epoch) VALUES (4, NULL)',
	'INSERT of rows with the current one and none' =>
	  'INSERT INTO t (id, epoch) VALUES (4, :current), (5, NULL), (6, :current)',
	'INSERT of rows with the current one and a stale one' =>
	  'INSERT INTO t (id, epoch) VALUES (4, :current), (5, :stale), (6, :current)',
	'COPY, the current one' => copy_in('COPY t (id, epoch) FROM STDIN', "4\t$epoch{current}"),
	'COPY, a stale one in the last of many rows' => copy_in('COPY t (id, epoch) FROM STDIN',
		(map { "$_\t$epoch{current}" } 4 .. 3000), "3001\t$epoch{stale}"),
	'UPDATE of an older row, to the current one' => 'UPDATE t SET v = 0, epoch = :current WHERE id = 2',
	'UPDATE of an older row, to another stale one' => 'UPDATE t SET v = 0, epoch = :older WHERE id = 2',
	'UPDATE of an older row, to what it was' => 'UPDATE t SET v = 0, epoch = :stale WHERE id = 2',
	'UPDATE of a current row, to what it was' => 'UPDATE t SET v = 0, epoch = :current WHERE id = 1',
	'UPDATE of a current row, to a stale one' => 'UPDATE t SET v = 0, epoch = :stale WHERE id = 1',
	'UPDATE of a current row, to NULL' => 'UPDATE t SET v = 0, epoch = NULL WHERE id = 1',
	'UPDATE of a row without one, to the current one' => 'UPDATE t SET epoch = :current WHERE id = 3',
	'upsert of an older row, setting the current one' =>
	  'INSERT INTO t (id, epoch) VALUES (2, :current) ON CONFLICT (id) DO UPDATE SET v = 0, epoch = excluded.epoch',
	'upsert of a current row, setting the current one' =>
	  'INSERT INTO t (id, epoch) VALUES (1, :current) ON CONFLICT (id) DO UPDATE SET v = 0, epoch = excluded.epoch',
	'upsert of an older row, proposing the current one and keeping the old' =>
	  'INSERT INTO t (id, epoch) VALUES (2, :current) ON CONFLICT (id) DO UPDATE SET v = 0',
	'upsert, proposing a stale one' =>
	  'INSERT INTO t (id, epoch) VALUES (2, :stale) ON CONFLICT (id) DO UPDATE SET v = 0, epoch = :current',
	'ON CONFLICT DO NOTHING with a conflict, proposing a stale one' =>
	  'INSERT INTO t (id, epoch) VALUES (1, :stale) ON CONFLICT DO NOTHING',
	'MERGE, inserting with the current one' => 'MERGE INTO t USING (VALUES (4)) s (id) ON s.id = t.id
		WHEN NOT MATCHED THEN INSERT (id, epoch) VALUES (s.id, :current)',
	'MERGE, updating an older row to the current one' => 'MERGE INTO t USING (VALUES (2)) s (id) ON s.id = t.id
		WHEN MATCHED THEN UPDATE SET v = 0, epoch = :current',
	'MERGE, updating an older row to another stale one' => 'MERGE INTO t USING (VALUES (2)) s (id) ON s.id = t.id
		WHEN MATCHED THEN UPDATE SET v = 0, epoch = :older',
	'DELETE of a row with the current one' => 'DELETE FROM t WHERE id = 1',
	'UPDATE to the current one that moves the row to another partition' =>
	  partitions('UPDATE t SET id = 102, epoch = :current WHERE id = 2'),
	'session_replication_role = replica and replica => true, the current one' =>
	  { replica => 1, run => [ $replica, 'INSERT INTO t (id, epoch) VALUES (4, :current)' ] },
	'session_replication_role = replica and replica => true, a stale one' =>
	  { replica => 1, run => [ $replica, 'INSERT INTO t (id, epoch) VALUES (4, :stale)' ] },
	'pg_restore --data-only, rows of an older term' => restore('stale', ''),

	# Templates
	map({ $_->[0] => { rows => $two_shards, run => $_->[1] } }
		[ 'INSERT into shard 1', 'INSERT INTO t (id, shard) VALUES (4, 1)' ],
		[ 'INSERT into shard 2', 'INSERT INTO t (id, shard) VALUES (4, 2)' ],
		[ 'INSERT into shards 1 and 2', 'INSERT INTO t (id, shard) VALUES (4, 1), (5, 1), (6, 2), (7, 1)' ],
		[ 'INSERT into a shard that nobody ever led', 'INSERT INTO t (id, shard) VALUES (4, 3)' ],
		[ 'INSERT without a shard', 'INSERT INTO t (id, shard) VALUES (4, NULL)' ],
		[ 'UPDATE in shard 1', 'UPDATE t SET v = 0 WHERE shard = 1' ],
		[ 'UPDATE from shard 1 to shard 2', 'UPDATE t SET shard = 2 WHERE id = 1' ],
		[ 'UPDATE from shard 2 to shard 1', 'UPDATE t SET shard = 1 WHERE id = 2' ],
		[ 'UPDATE from shard 1 to none', 'UPDATE t SET shard = NULL WHERE id = 1' ],
		[ 'DELETE from shards 1 and 2', 'DELETE FROM t' ],
		[
			'upsert that moves a row from shard 2 to shard 1',
			'INSERT INTO t (id, shard) VALUES (2, 1) ON CONFLICT (id) DO UPDATE SET shard = excluded.shard'
		],
		[
			'MERGE that moves a row from shard 1 to shard 2',
			'MERGE INTO t USING (VALUES (1)) s (id) ON s.id = t.id WHEN MATCHED THEN UPDATE SET shard = 2'
		],
		[ 'TRUNCATE of both', 'TRUNCATE t' ]),

	# Partitions
	'INSERT through the root' => partitions('INSERT INTO t (id) VALUES (4), (104)'),
	'INSERT directly into a leaf' => partitions('INSERT INTO leaf (id) VALUES (104)'),
	'INSERT through a partitioned partition' => partitions('INSERT INTO mid (id) VALUES (104)'),
	'INSERT into the default partition, through the root' => partitions('INSERT INTO t (id) VALUES (1000)'),
	'COPY … FROM STDIN through the root' => partitions(copy_in('COPY t (id) FROM STDIN', 4, 104)),
	'UPDATE of all leaves through the root' => partitions('UPDATE t SET v = v + 1'),
	'UPDATE that moves a row from leaf to leaf' => partitions('UPDATE t SET id = 102 WHERE id = 2'),
	'UPDATE that touches no row of a partitioned table' =>
	  unchanged(partitions('UPDATE t SET v = v + 1 WHERE id = 50')),
	'DELETE of all leaves through the root' => partitions('DELETE FROM t'),
	'MERGE that moves and inserts rows of a partitioned table' =>
	  partitions('MERGE INTO t USING (VALUES (1), (4)) s (id) ON s.id = t.id
		WHEN MATCHED THEN UPDATE SET id = 103 WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)'),
	'upsert through the root' => partitions(
		'INSERT INTO t (id) VALUES (1), (104) ON CONFLICT (id) DO UPDATE SET v = 0'),
	'TRUNCATE of the root' => partitions('TRUNCATE t'),
	'TRUNCATE of a partitioned partition' => partitions('TRUNCATE mid'),
	'TRUNCATE of a leaf' => partitions('TRUNCATE leaf'),
	'TRUNCATE ONLY of a leaf' => partitions('TRUNCATE ONLY low'),
	'CREATE TABLE … PARTITION OF, then INSERT into the new leaf' => later(
		'CREATE TABLE new PARTITION OF t FOR VALUES FROM (200) TO (300)',
		partitions('INSERT INTO new (id) VALUES (204)')),
	'CREATE TABLE … PARTITION OF, then TRUNCATE of the new leaf' => later(
		'CREATE TABLE new PARTITION OF t FOR VALUES FROM (200) TO (300); INSERT INTO new (id) VALUES (204)',
		partitions('TRUNCATE new')),
	'CREATE TABLE … PARTITION OF a partition, in CREATE SCHEMA, then INSERT' => later(
		'DROP TABLE leaf; CREATE SCHEMA w2
			CREATE TABLE new PARTITION OF w.mid FOR VALUES FROM (100) TO (200)',
		partitions('INSERT INTO w2.new (id) VALUES (104)')),
	'ATTACH PARTITION of a table with rows' => later(
		'CREATE TABLE new (LIKE t INCLUDING ALL); INSERT INTO new (id) VALUES (204)',
		partitions("ALTER TABLE t ATTACH PARTITION new $range")),
	'ATTACH PARTITION, then INSERT into the new leaf' => later(
		"CREATE TABLE new (LIKE t INCLUDING ALL); ALTER TABLE t ATTACH PARTITION new $range",
		partitions('INSERT INTO new (id) VALUES (204)')),
	'ATTACH PARTITION, then TRUNCATE of the new leaf' => later(
		"CREATE TABLE new (LIKE t INCLUDING ALL); INSERT INTO new (id) VALUES (204);
			ALTER TABLE t ATTACH PARTITION new $range",
		partitions('TRUNCATE new')),
	'ATTACH PARTITION of a partitioned table, then INSERT into its leaf' => later(
		"CREATE TABLE new (LIKE t INCLUDING DEFAULTS) PARTITION BY LIST (id);
			CREATE TABLE new_leaf PARTITION OF new FOR VALUES IN (204);
			ALTER TABLE t ATTACH PARTITION new $range",
		partitions('INSERT INTO new_leaf (id) VALUES (204)')),
	'ATTACH PARTITION, then TRUNCATE of the leaf of a new partitioned table' => later(
		"CREATE TABLE new (LIKE t INCLUDING DEFAULTS) PARTITION BY LIST (id);
			CREATE TABLE new_leaf PARTITION OF new FOR VALUES IN (204); INSERT INTO new (id) VALUES (204);
			ALTER TABLE t ATTACH PARTITION new $range",
		partitions('TRUNCATE new_leaf')),
	'ATTACH PARTITION of a table that is protected by statement' => later(
		q{CREATE TABLE new (LIKE t INCLUDING ALL); SELECT leader_protect('new', 'e')},
		partitions("ALTER TABLE t ATTACH PARTITION new $range")),
	'ATTACH PARTITION of a foreign table' => later(
		"CREATE FOREIGN TABLE new $foreign_columns SERVER nothing",
		{
			# A unique index would keep it out already.
			table => $partitioned =~ s/ PRIMARY KEY//r,
			rows => '',
			run => "ALTER TABLE t ATTACH PARTITION new $range"
		}),
	'DETACH PARTITION' => partitions('ALTER TABLE mid DETACH PARTITION leaf'),
	'DETACH PARTITION, then INSERT into what was detached' => later(
		'ALTER TABLE mid DETACH PARTITION leaf',
		{ %{ partitions('INSERT INTO leaf (id) VALUES (104)') }, watch => 'leaf' }),
	'DETACH PARTITION, then TRUNCATE of what was detached' => later(
		'ALTER TABLE mid DETACH PARTITION leaf',
		{ %{ partitions('TRUNCATE leaf') }, watch => 'leaf' }),
	'DETACH PARTITION CONCURRENTLY' => partitions('ALTER TABLE mid DETACH PARTITION leaf CONCURRENTLY'),
	'DETACH PARTITION, ATTACH PARTITION, then INSERT' => later(
		'ALTER TABLE mid DETACH PARTITION leaf; ALTER TABLE mid ATTACH PARTITION leaf FOR VALUES FROM (100) TO (200)',
		partitions('INSERT INTO leaf (id) VALUES (104)')),
	'DROP TABLE of a partition' => partitions('DROP TABLE leaf'),
	'UPDATE through an inheritance parent of rows of a child' => children('UPDATE t SET v = v + 1 WHERE id = 2'),
	'UPDATE through an unprotected parent of rows of a protected child' =>
	  { %{ children('UPDATE t SET v = v + 1 WHERE id = 2') }, relation => 'child' },
	'INSERT directly into a child' => children('INSERT INTO child (id) VALUES (4)'),
	'TRUNCATE of an inheritance parent' => children('TRUNCATE t'),
	'TRUNCATE of a child' => children('TRUNCATE child'),
	'TRUNCATE of an unprotected parent of a protected child' =>
	  { %{ children('TRUNCATE t') }, relation => 'child' },
	'CREATE TABLE … INHERITS, then INSERT into the new child' => later(
		'CREATE TABLE new () INHERITS (t)', { run => 'INSERT INTO new (id) VALUES (4)' }),
	'CREATE TABLE … INHERITS, then TRUNCATE of the new child' => later(
		'CREATE TABLE new () INHERITS (t); INSERT INTO new (id) VALUES (4)', { run => 'TRUNCATE new' }),
	'CREATE TABLE … INHERITS with session_replication_role = replica, then INSERT into the new child' => later(
		'SET session_replication_role = replica; CREATE TABLE new () INHERITS (t); RESET session_replication_role',
		{ run => 'INSERT INTO new (id) VALUES (4)' }),
	'INHERIT, then INSERT into the new child' => later(
		'CREATE TABLE new (LIKE t INCLUDING DEFAULTS); ALTER TABLE new INHERIT t',
		{ run => 'INSERT INTO new (id) VALUES (4)' }),
	'INHERIT of a table that is protected by statement' => later(
		q{CREATE TABLE new (LIKE t); SELECT leader_protect('new', 'e')},
		{ run => 'ALTER TABLE new INHERIT t' }),
	'INHERIT of a foreign table' => later(
		"CREATE FOREIGN TABLE new $foreign_columns SERVER nothing", { run => 'ALTER TABLE new INHERIT t' }),
	'NO INHERIT, then INSERT into what was a child' => later(
		'ALTER TABLE child NO INHERIT t',
		{ %{ children('INSERT INTO child (id) VALUES (4)') }, watch => 'child' }),

	# Maintenance, definitions, and reading
	'any write with leader_election.enforce = off' =>
	  { run => [ 'SET leader_election.enforce = off', 'UPDATE t SET v = v + 1' ] },
	'TRUNCATE with leader_election.enforce = off' =>
	  { run => [ 'SET leader_election.enforce = off', 'TRUNCATE t' ] },
	'any write with session_replication_role = replica' => { run => [ $replica, 'UPDATE t SET v = v + 1' ] },
	'any write with session_replication_role = local' =>
	  { run => [ 'SET session_replication_role = local', 'UPDATE t SET v = v + 1' ] },
	map({ $_->[0] . ' with session_replication_role = replica, protected with replica => true' =>
			  { replica => 1, run => [ $replica, $_->[1] ] } }
		[ 'INSERT', 'INSERT INTO t (id) VALUES (4)' ],
		[ 'UPDATE', 'UPDATE t SET v = v + 1' ],
		[ 'DELETE', 'DELETE FROM t' ],
		[ 'TRUNCATE', 'TRUNCATE t' ]),
	'pg_restore --data-only' => restore('none', ''),
	'pg_restore --data-only with leader_election.enforce = off' =>
	  restore('none', '-c leader_election.enforce=off'),
	'pg_restore --data-only --disable-triggers' => { run => [ restore('none', '', '--disable-triggers') ] },
	'ALTER TABLE … DISABLE TRIGGER, then a write' =>
	  { run => [ 'ALTER TABLE t DISABLE TRIGGER USER', 'UPDATE t SET v = v + 1' ] },
	'leader_unprotect(), then a write' =>
	  { run => [ q{SELECT leader_unprotect('t')}, 'UPDATE t SET v = v + 1' ] },
	'ALTER TABLE that rewrites a column' => 'ALTER TABLE t ALTER v TYPE text USING v || $$ changed$$',
	'ALTER TABLE … ADD COLUMN with a default' => 'ALTER TABLE t ADD x float DEFAULT random()',
	'ALTER TABLE … RENAME of table and schema, then a write' => {
		before => 'CREATE SCHEMA w2;',
		watch => 'w2.t2',
		run => [ 'ALTER TABLE t RENAME TO t2', 'ALTER TABLE t2 SET SCHEMA w2', 'DELETE FROM w2.t2' ] },
	'ALTER TABLE … RENAME of the columns that the fence looks at, then a write' => { run => [
			'ALTER TABLE t RENAME epoch TO epoch2', 'ALTER TABLE t RENAME shard TO shard2', 'UPDATE t SET v = v + 1' ] },
	'CREATE TRIGGER of a BEFORE row trigger behind ours, then a write' => { before => $trigger, run => [
			'CREATE TRIGGER "~~~behind" BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION change()',
			'UPDATE t SET v = v + 1' ] },
	'CREATE TABLE … (LIKE …), then a swap of names and a write' => { run => [
			'CREATE TABLE new (LIKE t INCLUDING ALL)', 'ALTER TABLE t RENAME TO former',
			'ALTER TABLE new RENAME TO t', 'INSERT INTO t (id) VALUES (4)' ] },
	'CLUSTER' => unchanged('CLUSTER t USING t_pkey'),
	'VACUUM FULL' => unchanged('VACUUM FULL t'),
	'DROP TABLE' => 'DROP TABLE t',
	'COMMIT that empties a temporary table, ON COMMIT DELETE ROWS' => {
		table => $table =~ s/^CREATE TABLE (.*);/CREATE TEMP TABLE $1 ON COMMIT DELETE ROWS;/r,
		same => 1,
		run => [
			'BEGIN', 'SET LOCAL leader_election.enforce = off', 'INSERT INTO t (id) VALUES (1)',
			'SET LOCAL leader_election.enforce = on', 'COMMIT' ] },
	'SELECT' => unchanged('SELECT * FROM t'),
	'SELECT … FOR UPDATE' => unchanged('SELECT * FROM t FOR UPDATE'),
	'LOCK TABLE' => unchanged({ run => [ 'BEGIN', 'LOCK TABLE t', 'COMMIT' ] }),
	'CREATE TABLE … AS from it' => unchanged('CREATE TABLE copy AS SELECT * FROM t'),
	'REFRESH MATERIALIZED VIEW of a view of it' =>
	  unchanged({ before => 'CREATE MATERIALIZED VIEW m AS SELECT * FROM t;', run => 'REFRESH MATERIALIZED VIEW m' }),
	'nextval() of its identity column' => unchanged({
		before => 'ALTER TABLE t ADD n int GENERATED ALWAYS AS IDENTITY;',
		run => q{SELECT nextval(pg_get_serial_sequence('t', 'n'))} }));

# Kinds of tables
my $columns = '(id int PRIMARY KEY, shard int NOT NULL DEFAULT 1, v int, epoch bigint)';
my %tables = (
	'ordinary' => { both => 1 },
	'unlogged' => { table => "CREATE UNLOGGED TABLE t $columns;" },
	'temporary, of the own session' => { table => "CREATE TEMP TABLE t $columns;" },
	'with an identity column' => { before => 'ALTER TABLE t ADD n int GENERATED ALWAYS AS IDENTITY;' },
	'with a stored generated column' =>
	  { before => 'ALTER TABLE t ADD g int GENERATED ALWAYS AS (v * 2) STORED;' },
	'with a virtual generated column (18 and later)' =>
	  { before => 'ALTER TABLE t ADD g int GENERATED ALWAYS AS (v * 2) VIRTUAL;' },
	'with columns that were dropped' => {
		table => 'CREATE TABLE t (a int, id int PRIMARY KEY, b text, shard int NOT NULL DEFAULT 1, v int, c int, epoch bigint);',
		before => 'ALTER TABLE t DROP a, DROP b, DROP c;' },
	'with foreign keys, and referred to by others' => {
		before => 'CREATE TABLE p (id int PRIMARY KEY); INSERT INTO p VALUES (1);
			ALTER TABLE t ADD p int DEFAULT 1 REFERENCES p;
			CREATE TABLE r (t int REFERENCES t ON DELETE CASCADE);' },
	'with row security, written by another role than the owner' => {
		before => 'ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON t USING (true);
			GRANT USAGE ON SCHEMA w TO writer; GRANT ALL ON t TO writer;',
		role => 'writer',
		without => qr/COPY/ },
	'with a trigger before ours in name order that changes the row' => { both => 1, before => $trigger
			. 'CREATE TRIGGER a BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION change();' },
	'with BEFORE triggers for statements, and AFTER triggers, behind ours' => { before => $trigger
			. 'CREATE TRIGGER "~~~b" BEFORE INSERT OR UPDATE OR DELETE ON t EXECUTE FUNCTION nothing();
			CREATE TRIGGER "~~~a" AFTER INSERT OR UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION nothing();' },
	'with a BEFORE row trigger for INSERT or UPDATE behind ours' => { before => $trigger
			. 'CREATE TRIGGER "~~~b" BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION change();' },
	'with a disabled one there' => { before => $trigger
			. 'CREATE TRIGGER "~~~b" BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION change();
			ALTER TABLE t DISABLE TRIGGER "~~~b";' },
	'with one that only fires for DELETE' => { before => $trigger
			. 'CREATE TRIGGER "~~~b" BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION change();' },
	'partitioned' => {
		both => 1,
		table => "CREATE TABLE t $columns PARTITION BY HASH (id);
			CREATE TABLE t1 PARTITION OF t FOR VALUES WITH (MODULUS 2, REMAINDER 0);
			CREATE TABLE t2 PARTITION OF t FOR VALUES WITH (MODULUS 2, REMAINDER 1);" },
	'partitioned, between root and leaf' => {
		table => "CREATE TABLE root $columns PARTITION BY RANGE (id);
			CREATE TABLE t PARTITION OF root FOR VALUES FROM (1) TO (100) PARTITION BY RANGE (id);
			CREATE TABLE leaf PARTITION OF t FOR VALUES FROM (1) TO (100);",
		relation => 'root' },
	'leaf partition of a protected table' => {
		table => "CREATE TABLE root $columns PARTITION BY RANGE (id);
			CREATE TABLE mid PARTITION OF root FOR VALUES FROM (1) TO (100) PARTITION BY RANGE (id);
			CREATE TABLE t PARTITION OF mid FOR VALUES FROM (1) TO (100);",
		relation => 'root' },
	'leaf partition whose columns are in another order' => {
		both => 1,
		table => "CREATE TABLE root $columns PARTITION BY RANGE (id);
			CREATE TABLE t (epoch bigint, x int, v int, shard int NOT NULL DEFAULT 1, id int PRIMARY KEY);
			ALTER TABLE t DROP x; ALTER TABLE root ATTACH PARTITION t FOR VALUES FROM (1) TO (100);",
		relation => 'root' },
	'partition that alone is protected' => {
		table => "CREATE TABLE root $columns PARTITION BY RANGE (id);
			CREATE TABLE t PARTITION OF root FOR VALUES FROM (1) TO (100);" },
	'inheritance parent with a child' => { table => $inherited, rows => '' },
	'inheritance child of a protected table' => {
		table => "CREATE TABLE root $columns; CREATE TABLE t (PRIMARY KEY (id)) INHERITS (root);",
		relation => 'root' },
	'inheritance child that alone is protected' =>
	  { table => "CREATE TABLE root $columns; CREATE TABLE t (PRIMARY KEY (id)) INHERITS (root);" },
	'view' => { table => 'CREATE VIEW t AS SELECT 1 AS shard, 1::bigint AS epoch;', rows => '' },
	'materialized view' =>
	  { table => 'CREATE MATERIALIZED VIEW t AS SELECT 1 AS shard, 1::bigint AS epoch;', rows => '' },
	'foreign table' =>
	  { table => 'CREATE FOREIGN TABLE t (shard int, epoch bigint) SERVER nothing;', rows => '' },
	'partitioned table with a foreign partition' => {
		table => 'CREATE TABLE t (shard int, epoch bigint) PARTITION BY LIST (shard);
			CREATE FOREIGN TABLE f PARTITION OF t FOR VALUES IN (1) SERVER nothing;',
		rows => '' },
	'sequence' => { table => 'CREATE SEQUENCE t;', rows => '' },
	'system catalog' => { relation => 'pg_catalog.pg_class' },
	'temporary table of another session' => { relation => $theirs },
	'whose epoch column is generated' => {
		table => $table =~ s/epoch bigint/epoch bigint GENERATED ALWAYS AS (1) STORED/r,
		rows => 'INSERT INTO t VALUES (1, 1, 10), (2, 1, 20);' },
	'whose epoch column is generated and virtual (18 and later)' => {
		table => $table =~ s/epoch bigint/epoch bigint GENERATED ALWAYS AS (1) VIRTUAL/r,
		rows => 'INSERT INTO t VALUES (1, 1, 10), (2, 1, 20);' },
	'whose epoch column is an identity column' => {
		table => $table =~ s/epoch bigint/epoch bigint GENERATED BY DEFAULT AS IDENTITY/r,
		rows => 'INSERT INTO t VALUES (1, 1, 10), (2, 1, 20);' },
	'whose epoch column is not of type bigint' => { table => $table =~ s/epoch bigint/epoch numeric/r },
	'without that epoch column' => {
		table => $table =~ s/, epoch bigint//r,
		rows => 'INSERT INTO t VALUES (1, 1, 10), (2, 1, 20);' },
	'whose column in the template is generated' => {
		table => $table =~ s/shard int NOT NULL DEFAULT 1/shard int GENERATED ALWAYS AS (1) STORED/r,
		rows => 'INSERT INTO t (id, v, epoch) VALUES (1, 10, :current), (2, 20, :stale);' },
	'whose column in the template is of type numeric' => { table => $table =~ s/shard int/shard numeric/r },
	'without the column in the template' => {
		table => $table =~ s/shard int NOT NULL DEFAULT 1, //r,
		rows => 'INSERT INTO t (id, v, epoch) VALUES (1, 10, :current), (2, 20, :stale);' },
	'that is protected already' => { before => q{SELECT leader_protect('t', 'e');} });

# What is done to each kind of table that can be protected
my @on_tables = ('INSERT', 'UPDATE', 'DELETE', 'INSERT … ON CONFLICT DO UPDATE with a conflict',
	'MERGE with all arms', 'COPY … FROM STDIN', 'TRUNCATE');

#
# Running a case
#

sub outcome
{
	my ($sql) = @_;
	$sql =~ s/:(current|stale|older|unissued)\b/$epoch{$1}/g;
	return eval { $dbh->do($sql); 1 } ? '00000' : $dbh->state;
}

# Makes the tables of a case anew, and protects them.
sub build
{
	my ($case, $protection) = @_;
	my $arguments = $protection{$protection} . ($case->{replica} ? ', replica => true' : '');

	$dbh->do('DISCARD ALL');
	$dbh->do('DROP SCHEMA IF EXISTS w, w2 CASCADE');
	my $state = outcome(join ' ', 'CREATE SCHEMA w;', $case->{table} // $table,
		$case->{rows} // $rows, $case->{before} // '');
	die "$case->{name}: " . $dbh->errstr if $state ne '00000';
	$state = outcome(sprintf q{SELECT leader_protect('%s', %s)}, $case->{relation} // 't', $arguments);
	return $state if $state ne '00000' || !$case->{after};

	# What has happened to the table since, by somebody who need not care
	$dbh->do('SET leader_election.enforce = off');
	$state = outcome($case->{after});
	$dbh->do('RESET leader_election.enforce');
	return $state;
}

# Rows, each followed by its epoch where rows of the table carry one
sub content
{
	my ($table, $protection) = @_;
	my $epoch = $stored{$protection} && $table eq 't' ? 'epoch' : 'NULL';
	my $rows = eval { column($dbh, "SELECT concat_ws('|', x::text, $epoch) FROM $table x ORDER BY 1") };

	return $rows ? @$rows : ('no table');
}

# Runs a case with a token.  The answer is the SQLSTATE, or for success "done" or
# "nothing", and whatever is wrong.
sub run
{
	my ($case, $protection, $token, $judged) = @_;
	my $watch = $case->{watch} // 't';
	my @run = ref $case->{run} eq 'ARRAY' ? @{ $case->{run} } : ($case->{run});
	my $state = '00000';

	# One that was refused at its only statement has left all as it was.
	if (!$case->{built} || $case->{built} ne $protection)
	{
		$state = build($case, $protection);
		return $state if $state ne '00000';
	}
	delete $case->{built};

	$dbh->do('SET leader_election.fence = ' . $dbh->quote($tokens{$token}));
	my @before = content($watch, $protection);
	$dbh->do("SET ROLE $case->{role}") if $case->{role};
	foreach my $i (0 .. $#run)
	{
		# What counts is what the last transaction does.
		@before = content($watch, $protection) if $i > 0 && $dbh->pg_ping == 1;
		$state = ref $run[$i] ? $run[$i]->($tokens{$token}) : outcome($run[$i]);
		last if $state ne '00000';
	}
	$dbh->do('ROLLBACK') if $dbh->pg_ping > 1;
	$dbh->do('RESET ROLE');

	my @after = content($watch, $protection);
	my $changed = "@after" ne "@before";
	if ($state ne '00000')
	{
		$case->{built} = $protection if @run == 1;
		return $changed ? "$state but changed" : $state;
	}
	return 'nothing' unless $changed;
	my %was = map { $_ => 1 } @before;
	return 'done under another epoch'
	  if $judged && $stored{$protection} && $watch eq 't'
	  && grep { !$was{$_} && !/\|$stored{$protection}$/ } @after;
	return 'done';
}

# What a cell of the manual says, for each of several tokens
sub promised
{
	my ($cell, $count) = @_;
	return qw(LE002 LE001 done) if $cell eq 'fenced';
	return ('done') x $count if $cell eq 'not judged';
	return split m{ / }, $cell if $cell =~ m{/};
	return ($cell) x $count;
}

sub check
{
	my ($name, $case, $protection, $cell, @with) = @_;
	my @promised = promised($cell, scalar @with);
	my $judged = $cell ne 'not judged';

	delete $case->{built};
	my @got = map { run($case, $protection, $_, $judged) } @with;
	@promised = map { $case->{same} && $_ eq 'done' ? 'nothing' : $_ } @promised;
	is("@got", "@promised", "P2: $protection: $name")
	  or diag($dbh->errstr // '');
	return;
}

# Does this server have what a case needs?
sub possible
{
	my ($name, $case) = @_;
	return 0 if $name =~ /\((\d+) and later\)/ && $1 > $major;
	return !$case->{needs} || $has{ $case->{needs} };
}

# The manual's tables: lists of rows, of which the first has the names of columns
sub manual_tables
{
	my $text = slurp_file(abs_path(dirname(__FILE__) . '/../../docs/fencing.md'));
	my @tables;

	while ($text =~ /^((?:\|.*\|\n)+)/mg)
	{
		my ($header, undef, @lines) = split /\n/, $1;
		push @tables, [ map { [ map { s/`|^ +| +$//gr } split /\|/, $_ =~ s/^\||\|$//gr ] } $header, @lines ];
	}
	return @tables;
}

# In which columns of a table is which protection judged, with which tokens?
my @all = qw(no stale current);
my %meaning = (
	'Statement|Plain|Epoch column|Template' =>
	  [ map { [ $_, @all ] } 'plain', 'epoch column', 'template' ],
	'Epoch in the row|No token|Stale token|Current token' => [ map { [ 'epoch column', $_ ] } @all ],
	'Rows of shards|No token|Of shard 1|Of shards 1 and 2' =>
	  [ map { [ 'template', $_ ] } 'no', 'of shard 1', 'current' ],
	'Table|Plain|Epoch column|Template' => 'tables');

#
# The test
#

append_to_file("$directory/rows", "4\t40\n5\t50\n");
foreach my $dump ([ 'none', 'NULL' ], [ 'stale', ':stale' ])
{
	build({ rows => "INSERT INTO t VALUES (4, 1, 40, $dump->[1]), (5, 1, 50, $dump->[1]);" }, 'plain');
	$node->command_ok(
		[ 'pg_dump', '-Fc', '--data-only', '-t', 'w.t', '-f', "$directory/$dump->[0]", 'postgres' ],
		"rows to be restored: $dump->[0]");
}

my (%seen, %promise, @kinds);
foreach my $table (manual_tables())
{
	my ($header, @rows) = @$table;
	my $meaning = $meaning{ join '|', @$header };

	next unless $meaning;
	foreach my $row (@rows)
	{
		my ($name, @cells) = @$row;

		if ($meaning eq 'tables')
		{
			push @kinds, $row;
			next;
		}
		my $case = $cases{$name};
		ok(!$seen{$name}++ && $case, "\"$name\" has a case, and is told once") or next;
		$promise{$name} = \@cells;
		$case = { run => $case } if ref $case ne 'HASH';
		next unless possible($name, $case);
		$case->{name} = $name;
		foreach my $i (0 .. $#$meaning)
		{
			my ($protection, @with) = @{ $meaning->[$i] };

			check($name, $case, $protection, $cells[$i], @with);
		}
	}
}
is(join('; ', sort grep { !$seen{$_} } keys %cases), '', 'every case is told of in the manual');

# Kinds of tables: the cell is the level, or why it cannot be protected.
# Template and epoch column together are as the template alone.
my @protections = ('plain', 'epoch column', 'template', 'template and epoch column');
foreach my $row (@kinds)
{
	my ($name, @cells) = @$row;
	my $kind = delete $tables{$name};

	ok($kind, "a table \"$name\" has a case") or next;
	next unless possible($name, $kind);
	$kind->{name} = $name;
	push @cells, $cells[2] if $kind->{both};
	foreach my $i (0 .. $#cells)
	{
		my $got = build($kind, $protections[$i]);
		$got = value($dbh, q{SELECT concat_ws(': ', level, problem) FROM leader_protected
				WHERE relation = to_regclass('t')}) if $got eq '00000';
		is($got, $cells[$i], "$protections[$i]: a table $name");
		next if $cells[$i] =~ /^\w{5}$/ || $got ne $cells[$i];

		foreach my $statement (@on_tables)
		{
			next if $kind->{without} && $statement =~ $kind->{without};
			my $case = ref $cases{$statement} eq 'HASH' ? $cases{$statement} : { run => $cases{$statement} };
			check("$statement, table $name", { %$kind, %$case, name => $name },
				$protections[$i], $promise{$statement}[ $i > 2 ? 2 : $i ], @all);
		}
	}
}
is(join('; ', sort keys %tables), '', 'every kind of table is told of in the manual');

# Nothing of all this has ended a term.
ok(value($dbh, 'SELECT leader_check(?, ?)', $_, $current{$_}), "\"$_\" is held as before")
  for sort keys %current;

done_testing();
