# An extension that was updated must be the one that is freshly installed.
#
# Guards, for the scripts in sql/:
# - what has been released is frozen: test/frozen.sha256 lists it;
# - from every version that can be installed, the path of updates to the present
#   one ends in the same catalog as a fresh installation, down to comments,
#   privileges and what a dump carries; and the library of today has the symbols
#   of all of them;
# - and that this comparison can fail: for update scripts that forget something
#   it does.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Digest::SHA;
use LeaderElection;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::RealBin/../..";

#
# Released scripts
#

# What is wrong with the files of a list, and which files it names
sub check_frozen
{
	my ($list, $root) = @_;
	my (@problems, %listed);

	foreach my $line (split /\n/, slurp_file($list))
	{
		next if $line =~ /^\s*(#|$)/;
		if ($line !~ /^([0-9a-f]{64}) [ *](\S+)$/)
		{
			push @problems, "not a line of sha256sum: $line";
			next;
		}
		my ($sum, $file) = ($1, $2);
		$listed{$file} = 1;
		if (!-f "$root/$file")
		{
			push @problems, "$file is missing";
		}
		elsif (Digest::SHA->new(256)->addfile("$root/$file", 'b')->hexdigest ne $sum)
		{
			push @problems, "$file has been changed since its release";
		}
	}
	return (\@problems, \%listed);
}

{
	my ($problems, $listed) = check_frozen("$top/test/frozen.sha256", $top);
	is_deeply($problems, [], 'released scripts are as they were');

	# The changelog says what has been released.
	my @unlisted;
	foreach my $heading (slurp_file("$top/CHANGELOG.md") =~ /^## (.*)$/mg)
	{
		my ($version) = split ' ', $heading;
		next if $heading =~ /unreleased/;
		foreach my $file (glob "$top/sql/leader_election--*.sql")
		{
			$file =~ s,^\Q$top\E/,,;
			push @unlisted, $file if $file =~ /--\Q$version\E\.sql$/ && !$listed->{$file};
		}
	}
	is_deeply(\@unlisted, [], 'all scripts of released versions are listed');

	# The comparison can fail.
	my $root = PostgreSQL::Test::Utils::tempdir;
	my $script = slurp_file("$top/sql/leader_election--1.0.sql");
	my $sum = Digest::SHA::sha256_hex($script);
	append_to_file("$root/same.sql", $script);
	append_to_file("$root/changed.sql", "$script\n");
	append_to_file("$root/list",
		"# comment\n\n$sum  same.sql\n$sum *changed.sql\n$sum  missing.sql\n$sum same.sql\n");
	is_deeply(
		(check_frozen("$root/list", $root))[0],
		[ 'changed.sql has been changed since its release',
			'missing.sql is missing',
			"not a line of sha256sum: $sum same.sql" ],
		'a changed, a missing and a misspelt one would be found');
}

#
# The catalog of the extension, one line for each property, without OIDs
#

# For each catalog that has members: which column is the OID of what they belong
# to, columns that are OIDs or that say nothing, and what is told instead.
my $no_acl = q{(SELECT array_agg(concat_ws(' ', CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END,
	a.privilege_type, a.is_grantable, a.grantor::regrole) ORDER BY a.grantee, a.privilege_type, a.grantor) FROM aclexplode(%s) a)};
sub acl { return sprintf $no_acl, $_[0]; }

my @catalogs = (
	{
		catalog => 'pg_class',
		key => 'c.oid',
		name => 'c.oid::regclass',
		omit => [ qw(oid relname relnamespace reltype reloftype relowner relam relfilenode reltablespace
			  relpages reltuples relallvisible relallfrozen reltoastrelid relhasindex relhasrules
			  relhastriggers relrewrite relfrozenxid relminmxid relacl) ],
		tell => {
			owner => 'c.relowner::regrole',
			am => '(SELECT amname FROM pg_am WHERE oid = c.relam)',
			toast => 'c.reltoastrelid <> 0',
			acl => acl(q{coalesce(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", c.relowner))}),
			view => q{CASE WHEN c.relkind = 'v' THEN pg_get_viewdef(c.oid) END},
			index => q{CASE WHEN c.relkind = 'i' THEN pg_get_indexdef(c.oid) END},
		},
	},
	{
		catalog => 'pg_index',
		key => 'c.indexrelid',
		name => 'c.indexrelid::regclass',
		omit => [qw(indexrelid indrelid indcollation indclass indexprs indpred indcheckxmin)],
		tell => {},
	},
	{
		catalog => 'pg_sequence',
		key => 'c.seqrelid',
		name => 'c.seqrelid::regclass',
		omit => [qw(seqrelid seqtypid)],
		tell => { type => 'c.seqtypid::regtype' },
	},
	{
		# Dropped columns count: rows are read by column number.
		catalog => 'pg_attribute',
		key => 'c.attrelid',
		name => q{c.attrelid::regclass || '.' || c.attname},
		omit => [ qw(attrelid atttypid attcollation attcacheoff atthasmissing attmissingval attacl
			  attoptions) ],
		tell => {
			type => 'format_type(c.atttypid, c.atttypmod)',
			collation => 'c.attcollation::regcollation',
			acl => acl('c.attacl'),
			# Without a number that some minor releases note there by themselves
			options => q{ARRAY(SELECT o FROM unnest(c.attoptions) o WHERE o NOT LIKE 'pg\_attver=%' ORDER BY o)},
			default => q{(SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d
				WHERE d.adrelid = c.attrelid AND d.adnum = c.attnum)},
		},
	},
	{
		catalog => 'pg_constraint',
		key => 'coalesce(nullif(c.conrelid, 0), c.contypid)',
		name => q{coalesce(nullif(c.conrelid, 0)::regclass::text, c.contypid::regtype::text) || '.' || c.conname},
		omit => [ qw(oid connamespace conrelid contypid conindid conparentid confrelid conpfeqop conppeqop
			  conffeqop conexclop conbin) ],
		tell => { definition => 'pg_get_constraintdef(c.oid)' },
	},
	{
		catalog => 'pg_trigger',
		key => 'c.tgrelid',
		name => q{c.tgrelid::regclass || '.' || c.tgname},
		omit => [ qw(oid tgrelid tgparentid tgfoid tgconstrrelid tgconstrindid tgconstraint tgqual) ],
		tell => {
			definition => 'pg_get_triggerdef(c.oid)',
			comment => q{obj_description(c.oid, 'pg_trigger')},
		},
	},
	{
		catalog => 'pg_rewrite',
		key => 'c.ev_class',
		name => q{c.ev_class::regclass || '.' || c.rulename},
		omit => [qw(oid ev_class ev_qual ev_action)],
		tell => { definition => 'pg_get_ruledef(c.oid)' },
	},
	{
		catalog => 'pg_policy',
		key => 'c.polrelid',
		name => q{c.polrelid::regclass || '.' || c.polname},
		omit => [qw(oid polrelid polqual polwithcheck polroles)],
		tell => {
			roles => 'c.polroles::regrole[]',
			condition => q{concat_ws(' / ', pg_get_expr(c.polqual, c.polrelid), pg_get_expr(c.polwithcheck, c.polrelid))},
		},
	},
	{
		catalog => 'pg_proc',
		key => 'c.oid',
		name => 'c.oid::regprocedure',
		omit => [ qw(oid pronamespace proowner prolang provariadic prosupport prorettype proargtypes proallargtypes
			  proargdefaults protrftypes prosqlbody proacl) ],
		tell => {
			owner => 'c.proowner::regrole',
			definition => 'pg_get_functiondef(c.oid)',
			arguments => 'pg_get_function_arguments(c.oid)',
			result => 'pg_get_function_result(c.oid)',
			acl => acl(q{coalesce(c.proacl, acldefault('f', c.proowner))}),
		},
	},
	{
		catalog => 'pg_type',
		key => 'c.oid',
		name => 'c.oid::regtype',
		omit => [ qw(oid typnamespace typowner typrelid typelem typarray typinput typoutput typreceive typsend
			  typmodin typmodout typanalyze typbasetype typcollation typsubscript typacl typdefaultbin) ],
		tell => {
			owner => 'c.typowner::regrole',
			base => 'nullif(c.typbasetype, 0)::regtype',
			element => 'nullif(c.typelem, 0)::regtype',
			acl => acl(q{coalesce(c.typacl, acldefault('T', c.typowner))}),
			labels => '(SELECT array_agg(enumlabel ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = c.oid)',
		},
	},
	{
		catalog => 'pg_event_trigger',
		key => 'c.oid',
		name => 'c.evtname',
		omit => [qw(oid evtowner evtfoid)],
		tell => { owner => 'c.evtowner::regrole', function => 'c.evtfoid::regprocedure' },
	});

# What belongs to the extension, and what belongs to that: indexes, constraints,
# defaults, triggers, and so on; but for TOAST tables, whose names are numbers.
my $members = q{
	WITH RECURSIVE members(classid, objid) AS (
		SELECT d.classid, d.objid FROM pg_depend d JOIN pg_extension e ON d.refobjid = e.oid
		 WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'leader_election'
		UNION
		SELECT d.classid, d.objid FROM pg_depend d JOIN members m ON d.refclassid = m.classid AND d.refobjid = m.objid
		 WHERE d.deptype IN ('i', 'a')
		   AND NOT EXISTS (SELECT FROM pg_class t WHERE t.oid = d.objid AND t.relkind = 't'
		                   AND d.classid = 'pg_class'::regclass))
};

sub catalog_of
{
	my ($dbh) = @_;
	my @lines;

	# Names are qualified where they are not on the path.
	$dbh->do('SET LOCAL search_path = pg_catalog');
	foreach my $c (@catalogs)
	{
		my $tell = join ', ', map { "'$_', $c->{tell}->{$_}" } sort keys %{ $c->{tell} };
		my $omit = join ',', @{ $c->{omit} };

		push @lines, @{ column($dbh, qq{
			$members
			SELECT concat_ws(' ', '$c->{catalog}', $c->{name}, p.key, p.value)
			  FROM $c->{catalog} c,
			       jsonb_each_text((to_jsonb(c) - '{$omit}'::text[]) || jsonb_build_object($tell)) p
			 WHERE $c->{key} IN (SELECT objid FROM members)}) };
	}
	push @lines, @{ column($dbh, $_) } for (
		# Of whatever kind they are
		qq{$members SELECT 'member ' || i.type || ' ' || i.identity || ' comment '
			|| coalesce(obj_description(objid, classid::regclass::name), 'none')
		     FROM members, pg_identify_object(classid, objid, 0) i},
		qq{$members SELECT 'comment ' || i.type || ' ' || i.identity || ' ' || d.description
		     FROM members m JOIN pg_description d ON d.classoid = m.classid AND d.objoid = m.objid,
		          pg_identify_object(d.classoid, d.objoid, d.objsubid) i},
		qq{$members SELECT 'depends ' || i.type || ' ' || i.identity || ' ' || d.deptype::text || ' '
			|| pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid)
		     FROM members m JOIN pg_depend d ON d.classid = m.classid AND d.objid = m.objid,
		          pg_identify_object(d.classid, d.objid, d.objsubid) i},
		# What a dump takes for given
		qq{$members SELECT 'initial privileges ' || i.type || ' ' || i.identity || ' ' || p.privtype::text || ' '
			|| } . acl('p.initprivs') . qq{::text
		     FROM members m JOIN pg_init_privs p ON p.classoid = m.classid AND p.objoid = m.objid,
		          pg_identify_object(p.classoid, p.objoid, p.objsubid) i},
		q{SELECT concat_ws(' ', 'extension', extnamespace::regnamespace, extowner::regrole, extrelocatable,
			obj_description(oid, 'pg_extension')) FROM pg_extension WHERE extname = 'leader_election'},
		q{SELECT 'dumped ' || t::regclass || ' ' || c FROM pg_extension, unnest(extconfig, extcondition) u(t, c)
		   WHERE extname = 'leader_election'});

	# A kind of object that is not described above in full
	my %known = map { $_->{catalog} => 1 } @catalogs, { catalog => 'pg_attrdef' };
	my @unknown = grep { !$known{$_} }
	  @{ column($dbh, "$members SELECT DISTINCT classid::regclass::text FROM members") };
	die "this test does not describe objects of @unknown" if @unknown;
	return [ sort @lines ];
}

sub difference
{
	my ($got, $expected) = @_;
	my %count;

	$count{$_}++ for @$got;
	$count{$_}-- for @$expected;
	return [ map { ($count{$_} > 0 ? 'only after the updates: ' : 'only when fresh: ') . $_ }
		  grep { $count{$_} != 0 } sort keys %count ];
}

# The catalog after these statements, of which nothing stays
sub catalog_after
{
	my ($dbh, @statements) = @_;

	$dbh->begin_work;
	$dbh->do('CREATE SCHEMA le');
	$dbh->do($_) for @statements;
	my $catalog = catalog_of($dbh);
	$dbh->rollback;
	return $catalog;
}

#
# The walk
#

my $node = new_node('main');
my $dbh = connect_to($node);
$dbh->do('DROP EXTENSION leader_election');
my $present = value($dbh,
	q{SELECT default_version FROM pg_available_extensions WHERE name = 'leader_election'});

# 1.10 comes after 1.9.
sub by_version
{
	my ($left, $right) = @_;
	return join('', map { sprintf '%08d', $_ } split /\D+/, $left) cmp
	  join('', map { sprintf '%08d', $_ } split /\D+/, $right);
}

my @versions = sort { by_version($a, $b) } @{ column($dbh,
		q{SELECT version FROM pg_available_extension_versions WHERE name = 'leader_election'}) };
my %targets = map { $_->[0] => $_->[1] } @{ $dbh->selectall_arrayref(
		q{SELECT source, path FROM pg_extension_update_paths('leader_election')
		   WHERE target = ? AND path IS NOT NULL}, undef, $present) };

is($versions[-1], $present, 'the newest version is the default');
ok(-e "$top/sql/leader_election--$present.sql", 'and can be installed at once');

my $fresh = catalog_after($dbh, 'CREATE EXTENSION leader_election SCHEMA le');
cmp_ok(scalar(grep { /^pg_proc .* provolatile/ } @$fresh), '>=', 10, 'functions are described');
foreach my $kind (qw(pg_attribute pg_constraint pg_trigger pg_sequence pg_rewrite dumped initial))
{
	cmp_ok(scalar(grep { /^$kind / } @$fresh), '>=', 2, "$kind is described");
}

foreach my $version (@versions)
{
	my $path = $version eq $present ? $version : $targets{$version};

	ok(defined $path, "there is a path from $version to $present") or next;
	my ($first, @steps) = split /--/, $path;
	my @walk = ("CREATE EXTENSION leader_election SCHEMA le VERSION '$first'",
		map { "ALTER EXTENSION leader_election UPDATE TO '$_'" } @steps);
	is_deeply(difference(catalog_after($dbh, @walk), $fresh),
		[], "$path: the same catalog as a fresh installation");
}

# Everything has a comment: also what is no member, but belongs to one and was
# given a name by us.
is_deeply([ grep { /^member .* comment none$/ && !/^member (type|index .*_pkey|toast table|table constraint|rule|default value|composite type|sequence value) / } @$fresh ],
	[], 'every object has a comment');

#
# The comparison can fail: a next version that adds one of everything, once
# with an update script that does the same, and then with ones that do not.
#

my $extensions = do {
	my ($out) = run_command([ 'pg_config', '--sharedir' ]);
	"$out/extension";
};
my @made;

END
{
	unlink @made if @made;
}

sub make_script
{
	my ($name, $text) = @_;
	my $file = "$extensions/leader_election--$name.sql";

	push @made, $file;
	append_to_file($file, $text);
	return;
}

my $addition = <<'EOC';

CREATE FUNCTION synthetic(a integer DEFAULT 1) RETURNS integer
LANGUAGE sql STABLE STRICT PARALLEL SAFE COST 7 AS 'SELECT a';
COMMENT ON FUNCTION synthetic(integer) IS 'a function';
REVOKE EXECUTE ON FUNCTION synthetic(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION synthetic(integer) TO pg_monitor;
CREATE TABLE synthetic_table (
    id integer PRIMARY KEY,
    value text COLLATE "C" NOT NULL DEFAULT 'x' CHECK (value <> '')
) WITH (fillfactor = 50);
SELECT pg_catalog.pg_extension_config_dump('synthetic_table', 'WHERE id > 0');
COMMENT ON TABLE synthetic_table IS 'a table';
COMMENT ON COLUMN synthetic_table.value IS 'a column';
GRANT SELECT ON synthetic_table TO PUBLIC;
CREATE INDEX synthetic_index ON synthetic_table (value);
CREATE TRIGGER synthetic_trigger BEFORE UPDATE ON synthetic_table
FOR EACH STATEMENT EXECUTE FUNCTION leader_election_guard();
COMMENT ON TRIGGER synthetic_trigger ON synthetic_table IS 'a trigger';
CREATE SEQUENCE synthetic_sequence MINVALUE 0;
SELECT pg_catalog.pg_extension_config_dump('synthetic_sequence', '');
CREATE VIEW synthetic_view WITH (security_barrier) AS SELECT id, value FROM synthetic_table;
GRANT SELECT ON synthetic_view TO PUBLIC;
CREATE TYPE synthetic_type AS (a integer, b text);
CREATE FUNCTION synthetic_event() RETURNS event_trigger
LANGUAGE plpgsql AS 'BEGIN END';
CREATE EVENT TRIGGER synthetic_event ON ddl_command_end
WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION synthetic_event();
CREATE OR REPLACE VIEW leader_status AS
SELECT s.*, 1 AS one FROM (@leader_status@) s;
COMMENT ON FUNCTION leader_check(text, bigint) IS 'another comment';
EOC

# what the update script forgets or does otherwise => how
my %wrong = (
	'a comment' => sub { s/^COMMENT ON FUNCTION synthetic.*\n//m },
	'the comment on a column' => sub { s/^COMMENT ON COLUMN.*\n//m },
	'the comment on a trigger' => sub { s/^COMMENT ON TRIGGER.*\n//m },
	'another comment on what was there' => sub { s/^COMMENT ON FUNCTION leader_check.*\n//m },
	'volatility' => sub { s/ STABLE/ VOLATILE/ },
	'strictness' => sub { s/ STRICT// },
	'the parallel label' => sub { s/ PARALLEL SAFE// },
	'the cost' => sub { s/ COST 7// },
	'a default' => sub { s/DEFAULT 1\b/DEFAULT 2/ },
	'no default' => sub { s/ DEFAULT 1\b// },
	'the name of an argument' => sub { s/synthetic\(a integer(.*)\n(.*)SELECT a'/synthetic(b integer$1\n$2SELECT b'/ },
	'the body of a function' => sub { s/'SELECT a'/'SELECT a + 0'/ },
	'the rights of its owner' => sub { s/ STABLE/ STABLE SECURITY DEFINER/ },
	'a setting of a function' => sub { s/ STABLE/ STABLE SET search_path = pg_catalog/ },
	'a REVOKE' => sub { s/^REVOKE.*\n//m },
	'a GRANT on a function' => sub { s/^GRANT EXECUTE.*\n//m },
	'a GRANT on a table' => sub { s/^GRANT SELECT ON synthetic_table.*\n//m },
	'a GRANT on a view' => sub { s/^GRANT SELECT ON synthetic_view.*\n//m },
	'the GRANT on a view that was replaced' => sub { s/\z/REVOKE ALL ON leader_status FROM PUBLIC;\n/ },
	'one GRANT too many' => sub { s/\z/GRANT SELECT ON leader_election_state TO PUBLIC;\n/ },
	'a table in dumps' => sub { s/^SELECT .*config_dump\('synthetic_table.*\n//m },
	'a sequence in dumps' => sub { s/^SELECT .*config_dump\('synthetic_sequence.*\n//m },
	'which rows are dumped' => sub { s/WHERE id > 0// },
	'a column of a view' => sub { s/SELECT id, value FROM/SELECT id FROM/ },
	'what a view says' => sub { s/SELECT id, value FROM synthetic_table/SELECT id, value FROM synthetic_table WHERE id > 0/ },
	'an option of a view' => sub { s/ WITH \(security_barrier\)// },
	'a view that was replaced' => sub { s/^CREATE OR REPLACE VIEW.*\n.*\n//m },
	'a primary key' => sub { s/ PRIMARY KEY/ NOT NULL/ },
	'a check' => sub { s/ CHECK \(value <> ''\)// },
	'NOT NULL' => sub { s/ NOT NULL DEFAULT/ DEFAULT/ },
	'the default of a column' => sub { s/DEFAULT 'x'/DEFAULT 'y'/ },
	'a collation' => sub { s/ COLLATE "C"// },
	'the type of a column' => sub { s/id integer/id bigint/ },
	'an option of a table' => sub { s/fillfactor = 50/fillfactor = 60/ },
	'a column dropped on the way' =>
	  sub { s/\z/ALTER TABLE synthetic_table ADD gone integer;\nALTER TABLE synthetic_table DROP gone;\n/ },
	'an index' => sub { s/^CREATE INDEX.*\n//m },
	'the column of an index' => sub { s/ON synthetic_table \(value\)/ON synthetic_table (id)/ },
	'a trigger' => sub { s/^CREATE TRIGGER.*\n.*\nCOMMENT.*\n//m },
	'the event of a trigger' => sub { s/BEFORE UPDATE ON/BEFORE DELETE ON/ },
	'a trigger that is switched off' =>
	  sub { s/\z/ALTER TABLE leader_election_state DISABLE TRIGGER leader_election_guard;\n/ },
	'a bound of a sequence' => sub { s/MINVALUE 0/MINVALUE 1/ },
	'a type' => sub { s/^CREATE TYPE.*\n//m },
	'an attribute of a type' => sub { s/a integer, b text/b text, a integer/ },
	'an event trigger' => sub { s/^CREATE EVENT TRIGGER.*\n.*\n//m },
	'the tags of an event trigger' => sub { s/'CREATE TABLE'/'CREATE TABLE', 'ALTER TABLE'/ },
	'an event trigger that is switched off' => sub { s/\z/ALTER EVENT TRIGGER synthetic_event DISABLE;\n/ },
	'an object that belongs to nobody' =>
	  sub { s/\z/ALTER EXTENSION leader_election DROP TYPE synthetic_type;\n/ },
	'an object that is left over' => sub { s/\z/CREATE FUNCTION left_over() RETURNS integer LANGUAGE sql AS 'SELECT 1';\n/ },
	'an owner' => sub { s/\z/ALTER FUNCTION synthetic(integer) OWNER TO pg_monitor;\n/ },
	'a dependency' => sub { s/\z/ALTER FUNCTION synthetic(integer) DEPENDS ON EXTENSION plpgsql;\n/ });

SKIP:
{
	skip "$extensions cannot be written", 1 + keys %wrong unless -w $extensions;

	$dbh->begin_work;
	$dbh->do('CREATE EXTENSION leader_election');
	my $status = value($dbh, q{SELECT pg_get_viewdef('leader_status')}) =~ s/\s+/ /gr =~ s/;\s*\z//r;
	$dbh->rollback;
	my $right = $addition =~ s/\@leader_status\@/$status/r;
	my $number = 0;

	make_script('next', slurp_file("$top/sql/leader_election--$present.sql") . $right);
	my $expected = catalog_after($dbh, q{CREATE EXTENSION leader_election SCHEMA le VERSION 'next'});
	cmp_ok(scalar @{ difference($expected, $fresh) }, '>', 20, 'the next version is another one');

	my $updated = sub {
		my ($script) = @_;
		my $version = 'synthetic' . $number++;

		make_script("$present--$version", $script);
		return difference(
			catalog_after($dbh,
				"CREATE EXTENSION leader_election SCHEMA le VERSION '$present'",
				"ALTER EXTENSION leader_election UPDATE TO '$version'"),
			$expected);
	};
	is_deeply($updated->($right), [], 'a right update script: the same catalog');
	foreach my $what (sort keys %wrong)
	{
		my $script = $right;

		$wrong{$what}->() for $script;
		die "nothing is wrong with $what" if $script eq $right;
		my $differences = $updated->($script);
		cmp_ok(scalar @$differences, '>', 0, "a wrong one is found: $what");
		note substr($differences->[0], 0, 200) if @$differences;
	}
}

done_testing();
