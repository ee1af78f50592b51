# What becomes of elections, epochs and protected tables in a dump and its
# restore, the extension lying in a schema that is on no search_path.
#
# Guards P1 (epochs do not repeat: the restored database draws above everything
# that was drawn before), P5 (a lease that the dump calls held is held for the
# rest of a TTL from the server's first look), and that a restored table is as
# protected as it was.  counter.pl has the counter far ahead of the clock; here
# the clock runs as it does.
#
# Triggers are restored after data, so the fence does not stop a full restore.
# It does stop the data alone, as every other write without a token; the switch
# for that is leader_election.enforce.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use PostgreSQL::Test::Utils;
use Test::More;

my $odd = q{odd '"\\ $$ election};
my $node = new_node('main', conf => "max_wal_senders = 0\n");
my $admin = connect_to($node);
my $counter = 0;

$admin->do('CREATE ROLE manager LOGIN');
$admin->do('CREATE ROLE reader LOGIN IN ROLE pg_read_all_data');
$admin->do('CREATE DATABASE source OWNER manager');

# Begins a new term and ends it again: the answer is its epoch.
sub draw
{
	my ($dbh) = @_;
	my $name = 'drawn ' . $counter++;
	my $epoch = value($dbh,
		q{SELECT epoch FROM le.leader_acquire(?, 'leader', '1 hour')}, $name);

	value($dbh, 'SELECT le.leader_release(?, ?)', $name, $epoch);
	return $epoch;
}

sub bid
{
	my ($dbh, $election, $holder, $ttl) = @_;
	return row($dbh,
		q{SELECT is_leader, epoch, leader, extract(epoch FROM expires_in)::float8 AS expires_in
		    FROM le.leader_acquire(?, ?, ?)},
		$election, $holder, $ttl // '1 hour');
}

#
# The database that is dumped
#

my $source = connect_to($node, 'source');
$source->do('CREATE SCHEMA le');
$source->do('CREATE EXTENSION leader_election SCHEMA le');
$source->do('GRANT USAGE ON SCHEMA le TO PUBLIC');
$source->do('REVOKE USAGE ON SEQUENCE le.leader_election_epoch FROM PUBLIC');
$source->do('GRANT USAGE ON SEQUENCE le.leader_election_epoch TO manager');
my $owner = connect_to($node, 'source', user => 'manager');
$owner->do('CREATE SCHEMA app');

my %term = map { $_ => bid($owner, $_, 'leader')->{epoch} }
  ('released', 'held', $odd);
$term{stale} = $term{held};
value($owner, q{SELECT le.leader_release('held', ?)}, $term{held});
value($owner, q{SELECT le.leader_release('released', ?)}, $term{released});
$term{held} = bid($owner, 'held', 'leader')->{epoch};
value($owner, q{SELECT le.leader_set_metadata('held', ?, '{"address": "10.0.0.1"}')},
	$term{held});
$term{short} = bid($owner, 'short', 'leader', '1 s')->{epoch};
my $short_since = now();
my $in_session = connect_to($node, 'source', user => 'manager');
$term{session} =
  value($in_session, q{SELECT epoch FROM le.leader_acquire_session('session', 'leader')});

# table => what leader_protect() was told
my %tables = (
	plain => q{'held'},
	by_row => q{'held', 'fence_epoch'},
	replica => q{'held', 'fence_epoch', true},
	partitioned => q{'held'},
	partitioned_by_row => q{'held', 'fence_epoch'},
	'odd "table"' => $owner->quote($odd) . q{, 'odd ''column'});
foreach my $table (sort keys %tables)
{
	my $name = 'app.' . $owner->quote_identifier($table);
	my $column = $table =~ /odd/ ? q{"odd 'column"} : 'fence_epoch';
	my $election = $table =~ /odd/ ? $odd : 'held';

	my $partitioned = $table =~ /^part/;

	# PostgreSQL cannot restore a primary key of partitions with --clean.
	$owner->do("CREATE TABLE $name (id int " . ($partitioned ? '' : 'PRIMARY KEY')
		  . ", $column bigint)" . ($partitioned ? ' PARTITION BY RANGE (id)' : ''));
	$owner->do("CREATE TABLE app.${table}_first PARTITION OF $name FOR VALUES FROM (0) TO (3)")
	  if $partitioned;
	$owner->do("SELECT le.leader_protect(?, $tables{$table})", undef, $name);
	$owner->do("CREATE TABLE app.${table}_rest PARTITION OF $name DEFAULT") if $partitioned;
	$owner->begin_work;
	value($owner, 'SELECT le.leader_fence(?, ?)', $election, $term{$election});
	$owner->do("INSERT INTO $name SELECT n, NULL FROM generate_series(1, 3) n");
	$owner->commit;
}
# Partitions, one of them made before and one after the table was protected, are
# tables by themselves too.
my @tables = map { 'app.' . $owner->quote_identifier($_) } sort keys %tables,
  map { ("${_}_first", "${_}_rest") } grep { /^part/ } keys %tables;

# By row, each by its own election; and an election whose tokens come from
# elsewhere.
$term{'shard/1'} = bid($owner, 'shard/1', 'leader')->{epoch};
$term{external} = 1000;
$owner->do('CREATE TABLE app.shards (shard int)');
value($owner, q{SELECT le.leader_protect('app.shards', 'shard/{shard}')});
value($owner, q{SELECT le.leader_configure('external', external => true)});
value($owner, q{SELECT le.leader_fence('external', ?)}, $term{external});
value($owner, q{SELECT le.leader_fence('shard/1', ?)}, $term{'shard/1'});
$owner->do('BEGIN');
value($owner, q{SELECT le.leader_fence('shard/1', ?)}, $term{'shard/1'});
$owner->do('INSERT INTO app.shards VALUES (1)');
$owner->do('COMMIT');

# How the tables are protected, what is in them, what is known of the elections
sub protection
{
	my ($dbh) = @_;
	return join "\n", @{ column($dbh, q{
		SELECT concat_ws(' ', tgrelid::regclass, tgenabled, pg_get_triggerdef(oid))
		  FROM pg_trigger WHERE NOT tgisinternal AND tgrelid::regclass::text ~ '^app\.'
		 ORDER BY 1}) };
}

sub content
{
	my ($dbh) = @_;
	return join "\n", map { ($_, @{ column($dbh, "SELECT t::text FROM $_ t ORDER BY 1") }) }
	  @tables, 'app.shards';
}

my $elections = q{
	SELECT concat_ws('|', election, epoch, terms, kind, ttl, owner, metadata, acquired_at)
	  FROM le.leader_status ORDER BY election COLLATE "C"};
my $terms = q{
	SELECT concat_ws('|', election, epoch, leader, acquired_at, ended_at, end_reason)
	  FROM le.leader_election_history ORDER BY epoch};
my %was = (
	protection => protection($source),
	content => content($source),
	elections => column($source, $elections),
	terms => column($source, $terms));
cmp_ok(scalar @{ $was{terms} }, '>', 1, 'there is history to be dumped');

#
# Dumps
#

my $directory = $node->basedir;
sub client
{
	my ($case, @command) = @_;
	return $node->command_ok([@command], $case);
}

client('dumped, custom format', 'pg_dump', '-Fc', '-f', "$directory/custom", 'source');
client('dumped, as a script', 'pg_dump', '-f', "$directory/script", 'source');
client('dumped, as a directory by two processes',
	'pg_dump', '-Fd', '-j', '2', '-f', "$directory/parts", 'source');
client('dumped with INSERTs', 'pg_dump', '--inserts', '--clean', '--if-exists',
	'-f', "$directory/inserts", 'source');
{
	local $ENV{PGOPTIONS} = '-c search_path=';
	client('the schema dumped, with an empty search_path',
		'pg_dump', '-Fc', '--schema-only', '-f', "$directory/schema", 'source');
	client('the data dumped, with an empty search_path',
		'pg_dump', '-Fc', '--data-only', '-f', "$directory/data", 'source');
}

client('a role that may read all data can dump everything', 'pg_dump', '-U', 'reader',
	'-Fc', '-f', "$directory/reader", 'source');

# A dump that takes long holds a snapshot, and a lock on every table.
{
	my $dumping = connect_to($node, 'source', user => 'reader');

	$dumping->do('BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY');
	$dumping->do("LOCK TABLE $_ IN ACCESS SHARE MODE")
	  for @tables, map { "le.leader_election_$_" } qw(state metadata history);
	value($dumping, 'SELECT count(*) FROM le.leader_election_state');
	is(value($owner, q{SELECT is_leader FROM le.leader_renew('held', ?)}, $term{held}), 1,
		'while a dump runs, leaders renew');
	ok(draw($owner), 'others acquire and release');
	check_writes('while a dump runs', $source);
	is(sqlstate($source, q{SELECT le.leader_set_metadata('held', ?, '{"address": "10.0.0.2"}')},
			$term{held}), '00000', 'and leaders publish');
	$dumping->do('COMMIT');
}

# What the source goes on to do is not in the dumps.
my $last = draw($owner);
poll_until(sub { elapsed($short_since) > 1 }, 'a lease to run out');

# Rights.  The owner of the database has none on the tables of the extension.
$node->command_fails_like(
	[ 'pg_dump', '-U', 'manager', '-f', "$directory/none", 'source' ],
	qr/(permission denied|failed to get data) for (table|sequence) "?leader_election_/,
	'the owner of the database cannot dump the elections');
client('but all the rest', 'pg_dump', '-U', 'manager', '-Fc', '-N', 'le',
	'-f', "$directory/owner", 'source');

#
# Restores
#

# Every ordinary write without a token is refused; with the leader's it passes.
sub check_protected
{
	my ($case, $dbh) = @_;

	is(protection($dbh), $was{protection}, "$case: triggers as they were");
	foreach my $table (@tables)
	{
		my @statements = ("INSERT INTO $table VALUES (10)", "TRUNCATE $table");

		# A trigger for rows has something to say only where there are some.
		push @statements, "UPDATE $table SET id = id + 100", "DELETE FROM $table"
		  if value($dbh, "SELECT count(*) FROM $table") > 0;
		my %states = map { $_ => sqlstate($dbh, $_) } @statements;

		is_deeply(
			\%states,
			{ map { $_ => 'LE002' } keys %states },
			"$case: P2: $table is protected");
	}
	is(sqlstate($dbh, 'INSERT INTO app.shards VALUES (2)'), 'LE002',
		"$case: P2: a table of many elections is protected");
	is(sqlstate($dbh, 'TRUNCATE app.shards'), '0A000', "$case: P2: also from TRUNCATE");
	is_deeply(
		column($dbh, q{SELECT relation::text FROM le.leader_protected
			WHERE NOT in_force OR problem IS NOT NULL}),
		[], "$case: leader_protected knows of no problem");

	# What keeps later partitions covered
	$dbh->do('BEGIN');
	$dbh->do('CREATE TABLE app.later PARTITION OF app.partitioned FOR VALUES FROM (1000) TO (1001)');
	is(sqlstate($dbh, 'INSERT INTO app.later VALUES (1000)'), 'LE002',
		"$case: P2: a partition made later is protected");
	$dbh->do('ROLLBACK');
	return;
}

sub check_writes
{
	my ($case, $dbh) = @_;

	foreach my $table (@tables)
	{
		my $election = $table =~ /odd/ ? $odd : 'held';

		# What the partition takes
		my ($id, $next) = $table =~ /_first/ ? (0, 0) : (20, 21);

		$dbh->do('BEGIN');
		is(sqlstate($dbh, 'SELECT le.leader_fence(?, ?)', $election, $term{$election}),
			'00000', "$case: the leader's token is good");
		is(sqlstate($dbh, "INSERT INTO $table VALUES ($id)"), '00000',
			"$case: the leader writes $table");
		is(sqlstate($dbh, "UPDATE $table SET id = $next WHERE id = $id"), '00000',
			"$case: the leader updates $table");
		is(sqlstate($dbh, "DELETE FROM $table WHERE id = $next"), '00000',
			"$case: and deletes from $table");
		is(sqlstate($dbh, 'COMMIT'), '00000', "$case: he commits");
	}
	is(sqlstate($dbh, q{SELECT le.leader_fence('held', ?)}, $term{stale}),
		'LE001', "$case: P2: an old token is stale");
	is(sqlstate($dbh, q{SELECT le.leader_fence('released', ?)}, $term{released}),
		'LE001', "$case: P2: so is one that was given back");

	$dbh->do('BEGIN');
	value($dbh, q{SELECT le.leader_fence('shard/1', ?)}, $term{'shard/1'});
	is(sqlstate($dbh, 'UPDATE app.shards SET shard = 1'), '00000',
		"$case: the leader of a shard writes it");
	is(sqlstate($dbh, 'INSERT INTO app.shards VALUES (2)'), 'LE002', "$case: P2: and no other");
	$dbh->do('ROLLBACK');
	is(sqlstate($dbh, q{SELECT le.leader_fence('external', ?)}, $term{external} - 1),
		'LE001', "$case: P2: an external token below the mark is stale");
	is(sqlstate($dbh, q{SELECT le.leader_fence('external', ?)}, $term{external}),
		'00000', "$case: that of the mark is good");

	# What was granted and revoked on the extension's objects since it was made
	$dbh->do('SET ROLE reader');
	is(sqlstate($dbh, q{SELECT le.leader_acquire('new', 'reader')}), '42501',
		"$case: who could not create elections cannot");
	$dbh->do('SET ROLE manager');
	is(sqlstate($dbh, q{SELECT le.leader_acquire('new', 'manager')}), '00000',
		"$case: who could can");
	$dbh->do('RESET ROLE');
	return;
}

# Elections of a dump that has their rows
sub check_elections
{
	my ($case, $dbh) = @_;
	my $first = bid($dbh, 'held', 'rival');

	ok(!$first->{is_leader}, "$case: P5: a held lease is held");
	is($first->{leader}, 'leader', "$case: by its holder");
	cmp_ok($first->{expires_in}, '<=', 3600, "$case: for one TTL at most");
	is_deeply(column($dbh, $elections), $was{elections},
		"$case: elections, epochs, metadata and owners as they were");
	is_deeply(column($dbh, $terms), $was{terms}, "$case: history as it was");
	ok(value($dbh, q{SELECT le.leader_check('held', ?)}, $term{held}),
		"$case: P5: leader_check is true");
	is(value($dbh, q{SELECT is_leader FROM le.leader_renew('held', ?)}, $term{held}), 1,
		"$case: P5: its holder goes on");
	is(bid($dbh, 'held', 'leader')->{epoch}, $term{held}, "$case: under the same epoch");

	# The server has been running for longer than that lease is.
	my $next = bid($dbh, 'short', 'rival');
	ok($next->{is_leader}, "$case: a lease that has run out since is not held");
	cmp_ok($next->{epoch}, '>', $last, "$case: P1: its epoch");
	is(value($dbh, q{SELECT is_leader FROM le.leader_renew('short', ?)}, $term{short}), 0,
		"$case: P2: whom it took over from cannot go on");

	foreach my $free ('released', 'session')
	{
		$next = bid($dbh, $free, 'rival');
		ok($next->{is_leader}, "$case: \"$free\" is free");
		cmp_ok($next->{epoch}, '>', $last, "$case: P1: its epoch");
		is(sqlstate($dbh, 'SELECT le.leader_fence(?, ?)', $free, $term{$free}),
			'LE001', "$case: P2: the dumped token is stale");
	}
	return;
}

# restore(case, prepare => [statements], with => [command], checks...)
sub restore
{
	my ($case, @commands) = @_;
	my $database = 'restored_' . $counter++;

	$admin->do("CREATE DATABASE $database OWNER manager");
	client($case, map { s/DATABASE/$database/r } @$_) for @commands;
	return connect_to($node, $database);
}

sub check_everything
{
	my ($case, $dbh) = @_;

	is(content($dbh), $was{content}, "$case: data as it was");
	check_protected($case, $dbh);
	check_elections($case, $dbh);
	check_writes($case, $dbh);

	cmp_ok(draw($dbh), '>', $last, "P1: $case: epochs go on");
	$dbh->disconnect;
	return;
}

check_everything('full', restore('full',
	[ qw(pg_restore --exit-on-error -d DATABASE), "$directory/custom" ]));
check_everything('full, in one transaction', restore('full, in one transaction',
	[ qw(pg_restore --single-transaction -d DATABASE), "$directory/custom" ]));
check_everything('by two processes', restore('by two processes',
	[ qw(pg_restore --exit-on-error -j 2 -d DATABASE), "$directory/parts" ]));
check_everything('script', restore('script',
	[ qw(psql -X -q -v ON_ERROR_STOP=1 -o /dev/null -d DATABASE -f), "$directory/script" ]));
check_everything('dumped by a reader', restore('dumped by a reader',
	[ qw(pg_restore --exit-on-error -d DATABASE), "$directory/reader" ]));

# Over what is there: the old objects are dropped first, with the extension,
# whose terms live on in the server's memory.
{
	my @restore = (qw(psql -X -q -v ON_ERROR_STOP=1 -o /dev/null -d DATABASE -f), "$directory/inserts");
	check_everything('cleaned, with INSERTs', restore('cleaned, with INSERTs', [@restore], [@restore]));

	my $dbh = restore('before', [@restore]);
	my $database = value($dbh, 'SELECT current_database()');
	value($dbh, q{SELECT le.leader_release('held', ?)}, $term{held});
	my $newer = bid($dbh, 'held', 'newer')->{epoch};
	client('over a newer state', map { s/DATABASE/$database/r } @restore);
	$dbh = connect_to($node, $database);
	is(sqlstate($dbh, q{SELECT le.leader_fence('held', ?)}, $newer),
		'LE003', 'P2: over a newer state: what it had granted is unknown');
	ok(!value($dbh, q{SELECT le.leader_check('held', ?)}, $newer),
		'over a newer state: nor is it led');
	my $before = $last;
	$last = $newer;
	check_everything('over a newer state', $dbh);
	$last = $before;
}

# The schema alone: tables are protected by elections that do not exist.
{
	my $case = 'schema only';
	my $dbh = restore($case, [ qw(pg_restore --exit-on-error -d DATABASE), "$directory/schema" ]);

	check_protected($case, $dbh);
	is(value($dbh, 'SELECT count(*) FROM le.leader_status'), 0, "$case: no election");
	is(sqlstate($dbh, q{SELECT le.leader_fence('held', ?)}, $term{held}),
		'LE003', "$case: a token of the source is unknown");
	my $next = bid($dbh, 'held', 'rival');
	ok($next->{is_leader}, "$case: it can be acquired");
	cmp_ok($next->{epoch}, '>', $last, "P1: $case: epochs go on");
	$dbh->begin_work;
	value($dbh, q{SELECT le.leader_fence('held', ?)}, $next->{epoch});
	is(sqlstate($dbh, 'INSERT INTO app.plain VALUES (1)'), '00000', "$case: its leader writes");
	$dbh->commit;
	is(sqlstate($dbh, q{SELECT le.leader_fence('held', ?)}, $term{held}),
		'LE001', "$case: P2: then a token of the source is stale");
}

# The data alone, into the schema.  The fence does not tell a restore from any
# other write, and nothing of a refused table is loaded.
my @schema = (qw(pg_restore --exit-on-error -d DATABASE), "$directory/schema");
my @data = (qw(pg_restore --exit-on-error -d DATABASE), "$directory/data");
{
	my $case = 'data only';
	my $dbh = restore($case, \@schema);
	my $database = value($dbh, 'SELECT current_database()');

	$node->command_fails_like(
		[ qw(pg_restore --data-only -d), $database, "$directory/custom" ],
		qr/no fencing token/, "$case: refused where nothing is done about the fence");
	is(value($dbh, "SELECT count(*) FROM $_"), 0, "$case: P2: nothing is in $_") for @tables;
	is_deeply(column($dbh, $elections), $was{elections}, "$case: the elections are there");

	# The leader may load what the dump has for a table without epochs.
	local $ENV{PGOPTIONS} = "-c leader_election.fence=held=$term{held}";
	client("$case: with the leader's token", qw(pg_restore --exit-on-error --data-only -n app -t plain -d),
		$database, "$directory/data");
	is(value($dbh, 'SELECT count(*) FROM app.plain'), 3, "$case: is loaded");
	check_protected($case, $dbh);
}
{
	local $ENV{PGOPTIONS} = '-c leader_election.enforce=off -c search_path=';
	my $dbh = restore('data only, enforce = off', \@schema, \@data);
	delete local $ENV{PGOPTIONS};
	my $plain = connect_to($node, value($dbh, 'SELECT current_database()'));
	check_everything('data only, enforce = off', $plain);
}

# PostgreSQL enables afterwards what it has disabled, in its ordinary mode: a
# trigger that was to fire for replicated changes too does so no longer.
{
	my $case = 'data only, --disable-triggers';
	my $dbh = restore($case, \@schema,
		[ @data[ 0, 1 ], '--disable-triggers', @data[ 2 .. $#data ] ]);

	is(protection($dbh), $was{protection} =~ s/^(\S+) A/$1 O/mgr,
		"$case: triggers as they were, but for their mode");
	value($dbh, q{SELECT le.leader_unprotect('app.replica')});
	value($dbh, "SELECT le.leader_protect('app.replica', $tables{replica})");
	check_everything($case, $dbh);
}

# A role that is no superuser.  The extension is there; its rows are left out.
{
	my $case = 'as the owner of the database';
	my $dbh = restore($case);
	my $database = value($dbh, 'SELECT current_database()');

	$dbh->do('CREATE SCHEMA le');
	$dbh->do('GRANT USAGE ON SCHEMA le TO PUBLIC');
	$dbh->do('CREATE EXTENSION leader_election SCHEMA le');
	client("$case: full", qw(pg_restore --exit-on-error --no-comments -N le -U manager -d), $database,
		"$directory/owner");
	is(content($dbh), $was{content}, "$case: data as it was");
	check_protected($case, connect_to($node, $database, user => 'manager'));
	is(value($dbh, q{SELECT count(*) FROM pg_class WHERE relnamespace = 'app'::regnamespace
			AND relkind = 'r' AND relowner <> 'manager'::regrole}),
		0, "$case: all tables are the owner's");
	my $epoch = bid(connect_to($node, $database, user => 'manager'), 'held', 'rival')->{epoch};
	cmp_ok($epoch, '>', $last, "P1: $case: epochs go on");
}
{
	# The switch is a superuser's; for a load by others he sets it for the
	# database.
	my $case = 'data only, as the owner of the database';
	my $dbh = restore($case, \@schema);
	my $database = value($dbh, 'SELECT current_database()');
	my @load = (qw(pg_restore --exit-on-error --data-only -N le -U manager -d), $database,
		"$directory/data");

	{
		local $ENV{PGOPTIONS} = '-c leader_election.enforce=off';
		$node->command_fails_like([@load], qr/epoch was never issued|no fencing token/,
			"$case: the switch is not the owner's");
	}
	is(value($dbh, "SELECT count(*) FROM $_"), 0, "$case: P2: nothing is in $_") for @tables;
	$dbh->do("ALTER DATABASE $database SET leader_election.enforce = off");
	client("$case: switched off for the database", @load);
	$dbh->do("ALTER DATABASE $database RESET leader_election.enforce");
	is(content($dbh), $was{content}, "$case: data as it was");
	check_protected($case, connect_to($node, $database, user => 'manager'));
}

# The source has seen nothing of all this.
is(value($owner, q{SELECT is_leader FROM le.leader_renew('held', ?)}, $term{held}), 1,
	'the source goes on');
is(value($in_session, q{SELECT le.leader_check('session', ?)}, $term{session}), 1,
	'also the session that leads there');
check_writes('source', $source);

#
# Another server, to which the dump is brought while the old one goes on for a
# while
#
{
	my $case = 'another server';
	my $other = new_node('other');
	my $there = connect_to($other);

	$there->do("CREATE ROLE $_ LOGIN") for 'manager', 'reader';
	$there->do('CREATE DATABASE restored OWNER manager');
	$last = draw($owner) for 1 .. 5;
	$other->command_ok(
		[ qw(pg_restore --exit-on-error -d restored), "$directory/custom" ], "$case: restored");

	my $dbh = connect_to($other, 'restored');
	my $looked_at = now();
	ok(!bid($dbh, 'short', 'rival')->{is_leader},
		"$case: P5: a lease is held, be it for a TTL from the first look");
	is(content($dbh), $was{content}, "$case: data as it was");
	check_protected($case, $dbh);
	my $early = 0;
	my $won = poll_until(
		sub {
			my $bid = bid($dbh, 'short', 'rival');
			$early++ if $bid->{is_leader} && elapsed($looked_at) < 1;
			$bid->{is_leader} ? $bid : undef;
		},
		'the takeover');
	is($early, 0, "$case: P5: no takeover before");
	cmp_ok($won->{epoch}, '>', $last, "P1: $case: epochs go on");
	ok(!bid($dbh, 'held', 'rival')->{is_leader}, "$case: P5: a long lease is held");
	check_writes($case, $dbh);
	$other->stop;
}

done_testing();
