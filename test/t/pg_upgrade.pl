# pg_upgrade carries elections, epochs and protected tables to a newer major.
#
# Guards P1 (epochs go on above all that were granted), P5 (a held lease is held
# and its holder goes on under its epoch) and P2 (tables are as protected as they
# were, and tokens are judged as before) across it.
#
# It needs a second, older server on the machine, with its headers, as the
# library has to be built for it: the oldest that Debian's place for them has, or
# the one whose pg_config OLD_PG_CONFIG names.
use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = abs_path("$FindBin::RealBin/../..");

sub ask
{
	my ($pg_config, $option) = @_;
	my $answer = -x $pg_config ? `'$pg_config' $option 2>/dev/null` : '';

	chomp $answer;
	return $answer;
}

sub major_of
{
	my ($pg_config) = @_;
	return ask($pg_config, '--version') =~ /^PostgreSQL (\d+)/ ? $1 : 0;
}

sub can_build
{
	my ($pg_config) = @_;
	return -x ask($pg_config, '--bindir') . '/postgres'
	  && -e ask($pg_config, '--includedir-server') . '/postgres.h'
	  && -e ask($pg_config, '--pgxs');
}

#
# The older server: a private copy with the library in it
#

my $new_bindir = do { my ($out) = run_command([qw(pg_config --bindir)]); $out };
my $new_major = major_of("$new_bindir/pg_config");
my $named = $ENV{OLD_PG_CONFIG};
my ($old) = defined $named
  ? ($named)
  : map { $_->[1] } sort { $a->[0] <=> $b->[0] }
	grep { $_->[0] >= 15 && $_->[0] < $new_major && can_build($_->[1]) }
	map { [ major_of($_), $_ ] } glob '/usr/lib/postgresql/*/bin/pg_config';

plan skip_all => "no server older than $new_major with its headers is installed"
  unless defined $old;
die "OLD_PG_CONFIG=$named: no older server than $new_major with its headers"
  if defined $named && !(major_of($old) < $new_major && can_build($old));
plan skip_all => 'pg_upgrade is not installed' unless -x "$new_bindir/pg_upgrade";

my $place = PostgreSQL::Test::Utils::tempdir;
my $source = "$place/source";
my $log = "$place/build.log";
my $private;
{
	# Its variables would reach the build, and speak of the newer server.
	local %ENV = %ENV;
	delete @ENV{qw(MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES)};
	$ENV{PG_CONFIG} = $old;
	my $setup = `'$top/test/setup' --private '$place/server' 2>'$log'`;
	$private = (split /\n/, $setup)[-1];
	delete $ENV{PG_CONFIG};
	if ($? != 0 || !defined $private)
	{
		my $reason = slurp_file($log);
		die $reason if defined $named;
		plan skip_all => $reason;
	}
	mkdir $source;
	system("tar -C '$top' -cf - Makefile leader_election.control sql src |
		tar -C '$source' --exclude='*.o' --exclude='*.bc' --exclude='*.so' -xf -") == 0
	  or die 'no copy of the sources';
	system("make -s -j 2 -C '$source' PG_CONFIG='$private' with_llvm=no install >'$log' 2>&1") == 0
	  or die 'the build for the older server failed: ' . slurp_file($log);
}
my $old_bindir = dirname($private);
note "from $old_bindir to $new_bindir";

#
# What it has
#

my $node = PostgreSQL::Test::Cluster->new('old', install_path => dirname($old_bindir));
$node->init;
$node->append_conf('postgresql.conf', "autovacuum = off\n");
$node->start;
my $dbh = connect_to($node);
$dbh->do('CREATE ROLE manager LOGIN');
$dbh->do('CREATE ROLE stranger LOGIN');
$dbh->do('CREATE DATABASE service OWNER manager');
$dbh->disconnect;

$dbh = connect_to($node, 'service');
is(value($dbh, 'SHOW server_version_num') =~ s/\d{4}$//r, major_of($private), 'the older server runs');
$dbh->do('CREATE SCHEMA le');
$dbh->do('CREATE EXTENSION leader_election SCHEMA le');
$dbh->do('GRANT USAGE ON SCHEMA le TO PUBLIC');
$dbh->do('REVOKE USAGE ON SEQUENCE le.leader_election_epoch FROM PUBLIC');
$dbh->do('GRANT USAGE ON SEQUENCE le.leader_election_epoch TO manager');
my $manager = connect_to($node, 'service', user => 'manager');
$manager->do('CREATE SCHEMA app');

my $counter = 0;
sub bid
{
	my ($dbh, $election, $holder, $ttl) = @_;
	return row($dbh,
		'SELECT is_leader, epoch, leader FROM le.leader_acquire(?, ?, ?)',
		$election, $holder, $ttl // '1 hour');
}

sub release
{
	my ($dbh, $election, $epoch) = @_;
	return value($dbh, 'SELECT le.leader_release(?, ?)', $election, $epoch);
}

sub draw
{
	my ($dbh) = @_;
	my $name = 'drawn ' . $counter++;
	my $epoch = bid($dbh, $name, 'leader')->{epoch};

	release($dbh, $name, $epoch);
	return $epoch;
}

my $stale = bid($manager, 'held', 'leader')->{epoch};
release($manager, 'held', $stale);
my $held = bid($manager, 'held', 'leader')->{epoch};
value($manager, q{SELECT le.leader_set_metadata('held', ?, '{"address": "10.0.0.1"}')}, $held);
my $released = bid($manager, 'released', 'leader')->{epoch};
release($manager, 'released', $released);
value($manager, q{SELECT epoch FROM le.leader_acquire_session('session', 'leader')});

my %tables = (
	'app.plain' => q{'held'},
	'app.by_row' => q{'held', 'fence_epoch'},
	'app.replica' => q{'held', 'fence_epoch', true},
	'app.partitioned' => q{'held'},
	'app.disabled' => q{'held'});
foreach my $table (sort keys %tables)
{
	my $partitioned = $table =~ /partitioned/;

	$manager->do("CREATE TABLE $table (id int, fence_epoch bigint)"
		  . ($partitioned ? ' PARTITION BY RANGE (id)' : ''));
	$manager->do("CREATE TABLE app.part PARTITION OF $table FOR VALUES FROM (0) TO (10)")
	  if $partitioned;
	value($manager, "SELECT le.leader_protect(?, $tables{$table})", $table);
	$manager->begin_work;
	value($manager, q{SELECT le.leader_fence('held', ?)}, $held);
	$manager->do("INSERT INTO $table VALUES (1, NULL)");
	$manager->commit;
}

# An election whose tokens come from elsewhere
value($manager, q{SELECT le.leader_configure('external', external => true)});
value($manager, q{SELECT le.leader_fence('external', 1000)});
$manager->do('ALTER TABLE app.disabled DISABLE TRIGGER USER');
my @protected = grep { $_ ne 'app.disabled' } sort keys %tables;

# What must be the same afterwards
my %queries = (
	triggers => q{SELECT concat_ws(' ', tgrelid::regclass, tgenabled, pg_get_triggerdef(oid))
		FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1},
	elections => q{SELECT concat_ws('|', election, epoch, terms, kind, ttl, owner, metadata, acquired_at)
		FROM le.leader_status ORDER BY election COLLATE "C"},
	history => q{SELECT h::text FROM le.leader_election_history h ORDER BY epoch},
	# Not the owner's own, to which newer majors add
	rights => q{SELECT concat_ws(' ', relname, CASE WHEN grantee <> 0 THEN grantee::regrole END, privilege_type)
		FROM pg_class, aclexplode(relacl) WHERE relname LIKE 'leader%' AND grantee <> relowner ORDER BY 1},
	extension => q{SELECT concat_ws(' ', extversion, extnamespace::regnamespace, t::regclass, c)
		FROM pg_extension, unnest(extconfig, extcondition) u(t, c)
		WHERE extname = 'leader_election' ORDER BY t::regclass::text COLLATE "C"},
	members => q{SELECT pg_describe_object(classid, objid, objsubid) FROM pg_depend
		WHERE deptype = 'e' AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'leader_election')
		  AND classid <> 'pg_type'::regclass ORDER BY 1},
	data => join(' UNION ALL ', map { "SELECT '$_ ' || t::text FROM $_ t" } sort keys %tables) . ' ORDER BY 1');
my $last;
$last = draw($manager) for 1 .. 3;
my %was = map { $_ => column($dbh, $queries{$_}) } sort keys %queries;
$_->disconnect for $manager, $dbh;
$node->stop;

#
# The upgrade
#

my $new = PostgreSQL::Test::Cluster->new('new');
$new->init(extra => $new_major >= 18 ? ['--no-data-checksums'] : []);
$new->append_conf('postgresql.conf', "autovacuum = off\n");

# A newer server without the library: said before anything is changed.
my ($bare) = reverse split /\n/,
  `PG_CONFIG='$new_bindir/pg_config' '$top/test/setup' --private '$place/bare' 2>'$log'`;
SKIP:
{
	skip 'no copy of the newer server without the library: ' . slurp_file($log), 2
	  unless defined $bare;
	my $cwd = Cwd::getcwd();
	chdir $place or die;
	ok( !run_log(
			[
				dirname($bare) . '/pg_upgrade', '--check',
				'-d', $node->data_dir, '-D', $new->data_dir,
				'-b', $old_bindir, '-B', dirname($bare),
				'-s', $new->host, '-p', $node->port, '-P', $new->port
			]),
		'pg_upgrade --check refuses where the library is missing');
	like(
		join('', map { slurp_file($_) }
			  glob $new->data_dir . '/pg_upgrade_output.d/*/loadable_libraries.txt'),
		qr/leader_election/, 'and names it');
	chdir $cwd or die;
}

{
	# It writes into the current directory, and starts programs of both.
	my $cwd = Cwd::getcwd();
	chdir $place or die;
	my $done = run_log(
		[
			"$new_bindir/pg_upgrade", '--no-sync',
			'-d', $node->data_dir, '-D', $new->data_dir,
			'-b', $old_bindir, '-B', $new_bindir,
			'-s', $new->host, '-p', $node->port, '-P', $new->port
		]);
	my $reason = $done ? '' : join '', map { slurp_file($_) }
	  glob $new->data_dir . '/pg_upgrade_output.d/*/log/pg_upgrade_*.log';
  SKIP:
	{
		skip 'the newer server is of an earlier minor release, and does not take dumps of the older', 1
		  if $reason =~ /unrecognized parameter "pg_attver"/;
		ok($done, 'pg_upgrade');
	}
	if (!$done)
	{
		note $reason;
		done_testing();
		exit;
	}
	chdir $cwd or die;
}
$new->start;
$dbh = connect_to($new, 'service');
$manager = connect_to($new, 'service', user => 'manager');

is(value($dbh, 'SHOW server_version_num') =~ s/\d{4}$//r, $new_major, 'the newer server runs');
my $first = bid($manager, 'held', 'rival');
ok(!$first->{is_leader}, 'P5: a held lease is held');
is($first->{leader}, 'leader', 'P5: by its holder');
foreach my $what (sort keys %queries)
{
	is_deeply(column($dbh, $queries{$what}), $was{$what}, "$what as before");
}
ok(value($manager, q{SELECT le.leader_check('held', ?)}, $held), 'P5: leader_check is true');
is(value($manager, q{SELECT is_leader FROM le.leader_renew('held', ?)}, $held),
	1, 'P5: its holder goes on');
is(bid($manager, 'held', 'leader')->{epoch}, $held, 'P5: under the same epoch');

# Protected as before
foreach my $table (@protected)
{
	is(sqlstate($manager, "INSERT INTO $table VALUES (2, NULL)"),
		'LE002', "P2: $table: no write without a token");
	is(sqlstate($manager, "UPDATE $table SET id = 2"), 'LE002', "P2: $table: no update");
	is(sqlstate($manager, "DELETE FROM $table"), 'LE002', "P2: $table: no deletion");
	is(sqlstate($manager, "TRUNCATE $table"), 'LE002', "P2: $table: no truncation");
	$manager->begin_work;
	is(sqlstate($manager, q{SELECT le.leader_fence('held', ?)}, $held),
		'00000', "$table: the leader's token is good");
	is(sqlstate($manager, "INSERT INTO $table VALUES (2, NULL)"), '00000', "$table: he writes");
	$manager->commit;
}
is(sqlstate($manager, 'INSERT INTO app.part VALUES (2)'), 'LE002',
	'P2: a partition is protected');
$manager->do('CREATE TABLE app.later PARTITION OF app.partitioned FOR VALUES FROM (10) TO (20)');
is(sqlstate($manager, 'INSERT INTO app.later VALUES (10)'), 'LE002',
	'P2: also one that is made later');
is(sqlstate($manager, q{SELECT le.leader_fence('external', 999)}), 'LE001',
	'P2: an external token below the mark is stale');
is(sqlstate($manager, q{SELECT le.leader_fence('external', 1000)}), '00000',
	'that of the mark is good');
is_deeply(
	column($manager, q{SELECT relation::text FROM le.leader_protected
		WHERE NOT in_force OR problem IS NOT NULL}),
	['app.disabled'], 'leader_protected knows of one problem');
$dbh->do('SET session_replication_role = replica');
is(sqlstate($dbh, 'INSERT INTO app.replica VALUES (3, ?)', $stale),
	'LE001', 'P2: replicated changes are judged where they were');
is(sqlstate($dbh, 'INSERT INTO app.by_row VALUES (3, ?)', $stale),
	'00000', 'and where they were not, are not');
$dbh->do('RESET session_replication_role');
is(sqlstate($manager, 'INSERT INTO app.disabled VALUES (2)'),
	'00000', 'what was switched off is switched off');
is(sqlstate($manager, q{SELECT le.leader_fence('held', ?)}, $stale),
	'LE001', 'P2: a stale token is stale');
is(sqlstate(connect_to($new, 'service', user => 'stranger'),
		q{SELECT le.leader_acquire('new', 'stranger')}),
	'42501', 'who could not create elections still cannot');

# Epochs
foreach my $election ('released', 'session', 'new')
{
	my $term = bid($manager, $election, 'next');

	ok($term->{is_leader}, "\"$election\" is free");
	cmp_ok($term->{epoch}, '>', $last, 'P1: and its epoch higher than any before');
	$last = $term->{epoch};
}
is(sqlstate($manager, q{SELECT le.leader_fence('released', ?)}, $released),
	'LE001', 'P2: a token that was given back is stale');
$_->disconnect for $manager, $dbh;
$new->restart;
$manager = connect_to($new, 'service', user => 'manager');
cmp_ok(draw($manager), '>', $last, 'P1: also after a restart');
is(value($manager, q{SELECT is_leader FROM le.leader_renew('held', ?)}, $held),
	1, 'P5: and the holder goes on');

done_testing();
