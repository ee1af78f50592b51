# The extension moved to another schema, or dropped, by one session while others
# are at work with it.
#
# Guards P2 and P4 there: a term is led, and a fenced transaction judged, as if
# nothing had happened, by sessions that have looked up everything before; a
# fenced transaction that is open is waited for.  After DROP EXTENSION such
# sessions get a clear error, and after CREATE EXTENSION find the new objects,
# where nothing of the old terms is known, and epochs grow (P1).  And a database
# is dropped with the sessions that lead in it.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use Test::More;

my $node = new_node('main');
my $admin = connect_to($node);

$admin->do('DROP EXTENSION leader_election');
$admin->do("CREATE SCHEMA $_") for 'here', 'there';
$admin->do('CREATE EXTENSION leader_election SCHEMA here');
$admin->do('CREATE TABLE plain (id int)');
$admin->do('CREATE TABLE by_row (id int, fence_epoch bigint)');

# Every session finds the extension in either schema.
sub session
{
	my $dbh = connect_to($node);
	$dbh->do('SET search_path = public, here, there');
	return $dbh;
}

my ($leader, $writer, $in_session) = (session(), session(), session());
my $held = acquire($leader, 'held', 'leader', '1 hour')->{epoch};
my $own = value($in_session, q{SELECT epoch FROM leader_acquire_session('session', 'leader')});
value($leader, q{SELECT leader_protect('plain', 'held')});
value($leader, q{SELECT leader_protect('by_row', 'held', 'fence_epoch')});

# Plans and lookups that are kept
$writer->do("SET leader_election.fence = 'held=$held'");
$writer->do(q{CREATE FUNCTION public.leads(bigint) RETURNS boolean LANGUAGE plpgsql
	AS 'BEGIN RETURN leader_check(''held'', $1); END'});
$writer->do(q{PREPARE status AS SELECT election, leader FROM leader_status
	WHERE leader IS NOT NULL ORDER BY election});

sub use_everything
{
	my ($case) = @_;

	ok(is_leader(renew($leader, 'held', $held)), "P4: $case: the leader renews");
	is(acquire($leader, 'held', 'leader', '1 hour')->{epoch}, $held, "$case: acquires again");
	ok(!is_leader(acquire($writer, 'held', 'rival', '1 hour')), "P4: $case: nobody else does");
	is_deeply(column($leader, q{SELECT election FROM leader_renew_all('leader') ORDER BY 1}),
		['held'], "$case: leader_renew_all");
	ok(value($writer, 'SELECT leads(?)', $held), "$case: a function with a kept plan");
	is_deeply($writer->selectall_arrayref('EXECUTE status'),
		[ [ 'held', 'leader' ], [ 'session', 'leader' ] ], "$case: a prepared statement");
	ok(value($in_session, q{SELECT leader_check('session', ?)}, $own),
		"$case: a term of a session goes on");
	is(value($in_session, q{SELECT epoch FROM leader_acquire_session('session', 'leader')}),
		$own, "$case: under its epoch");
	ok( !value($writer, q{SELECT is_leader FROM leader_acquire_session('session', 'rival')}),
		"P4: $case: nobody else has it");
	foreach my $table ('plain', 'by_row')
	{
		is(sqlstate($writer, "INSERT INTO $table VALUES (1)"), '00000',
			"$case: a token in the setting is good for $table");
		is(sqlstate($admin, "INSERT INTO $table VALUES (1)"), 'LE002',
			"P2: $case: $table is protected");
	}
	is(sqlstate($admin, 'INSERT INTO by_row VALUES (1, 1)'), 'LE001',
		"P2: $case: a stale epoch is refused");
	my $epoch = acquire($writer, $case, 'leader', '1 hour')->{epoch};
	cmp_ok($epoch, '>', $held, "P1: $case: a new term");
	value($writer, 'SELECT leader_release(?, ?)', $case, $epoch);
	return;
}

use_everything('at first');
$admin->do('ALTER EXTENSION leader_election SET SCHEMA there');
use_everything('moved');
$admin->do('ALTER SCHEMA there RENAME TO elsewhere');
$_->do('SET search_path = public, here, elsewhere') for $leader, $writer, $in_session;
use_everything('its schema renamed');
$admin->do('ALTER SCHEMA elsewhere RENAME TO there');
$_->do('SET search_path = public, here, there') for $leader, $writer, $in_session;

# Waits for a lock that another session has, until that has ended its transaction
sub behind
{
	my ($case, $statement, $end) = @_;

	start_query($admin, $statement);
	wait_for_state($writer, backend_pid($admin), qr/Lock relation/);
	is($end->(), '00000', "P2: $case: the fenced transaction commits");
	is(scalar finish_query($admin), '00000', "$case: done then");
	return;
}

foreach my $schema ('here', 'there')
{
	my $case = "moved to $schema under a fenced transaction";

	$leader->do('BEGIN');
	value($leader, q{SELECT leader_fence('held', ?)}, $held);
	is(sqlstate($leader, 'INSERT INTO plain VALUES (2)'), '00000', "$case: a write");
	behind($case, "ALTER EXTENSION leader_election SET SCHEMA $schema",
		sub { sqlstate($leader, 'COMMIT') });
	use_everything($case);
}

# The same for the drop.  The data that was written is there.
my $written = value($admin, 'SELECT count(*) FROM by_row');
$leader->do('BEGIN');
value($leader, q{SELECT leader_fence('held', ?)}, $held);
is(sqlstate($leader, 'INSERT INTO by_row VALUES (3)'), '00000', 'dropped: a write before');
behind('dropped', 'DROP EXTENSION leader_election CASCADE',
	sub { sqlstate($leader, 'COMMIT') });
is(value($admin, 'SELECT count(*) FROM by_row'), $written + 1, 'dropped: the data stays');
is(sqlstate($leader, q{SELECT leader_check('held', ?)}, $held),
	'42883', 'dropped: its functions are gone');
is(sqlstate($writer, 'SELECT leads(?)', $held), '42883', 'dropped: also for a kept plan');
is(sqlstate($writer, 'EXECUTE status'), '42P01', 'dropped: the view too');
is(sqlstate($writer, 'INSERT INTO plain VALUES (4)'), '00000',
	'dropped: nothing is protected');

# Created again, for sessions that remember the other one
$admin->do('CREATE EXTENSION leader_election SCHEMA there');
foreach my $dbh ($leader, $writer, $in_session)
{
	ok(!value($dbh, q{SELECT leader_check('held', ?)}, $held),
		'P2: created again: the old term is not led');
	ok(!is_leader(renew($dbh, 'held', $held)), 'nor renewed');
	is(sqlstate($dbh, q{SELECT leader_fence('held', ?)}, $held),
		'LE003', 'nor is its token good');
}
ok(!value($in_session, q{SELECT leader_check('session', ?)}, $own),
	'P2: created again: nor is that of a session');
my $next = acquire($writer, 'held', 'next', '1 hour');
ok(is_leader($next), 'created again: it can be acquired');
cmp_ok($next->{epoch}, '>', $own, 'P1: with a higher epoch');
is(sqlstate($leader, q{SELECT leader_fence('held', ?)}, $held),
	'LE001', 'P2: then the old token is stale');
my $again = row($in_session, q{SELECT * FROM leader_acquire_session('session', 'leader')});
ok($again->{is_leader}, 'created again: the session leads again');
cmp_ok($again->{epoch}, '>', $next->{epoch}, 'P1: with a higher epoch');
value($leader, q{SELECT leader_protect('plain', 'held')});
is(sqlstate($admin, 'INSERT INTO plain VALUES (5)'), 'LE002', 'P2: created again: protected again');
is(sqlstate($writer, 'INSERT INTO plain VALUES (5)'), 'LE001',
	'P2: the token in the setting is of the old term');
value($leader, q{SELECT leader_unprotect('plain')});

# Under an open transaction that has acquired a term
$leader->do('BEGIN');
my $open = acquire($leader, 'open', 'leader', '1 hour')->{epoch};
start_query($admin, 'DROP EXTENSION leader_election');
wait_for_state($writer, backend_pid($admin), qr/Lock relation/);
is(sqlstate($leader, 'COMMIT'), '00000', 'an acquisition under way is waited for');
is(scalar finish_query($admin), '00000', 'and then the extension dropped');
$admin->do('CREATE EXTENSION leader_election SCHEMA here');
ok(!is_leader(renew($leader, 'open', $open)), 'the term has gone with it');

# Under a candidate that waits
acquire($leader, 'held', 'leader', '1 hour');
start_query($writer,
	q{SELECT is_leader FROM leader_acquire('held', 'candidate', '1 hour', wait => '2 s')});
poll_until(
	sub {
		query_done($writer) || value($leader,
			q{SELECT wait_event IN ('LeaderElectionAcquire', 'Extension')
			    FROM pg_stat_activity WHERE pid = ?}, backend_pid($writer));
	},
	'a candidate to wait');
start_query($admin, 'DROP EXTENSION leader_election');
my ($state, $rows) = finish_query($writer);
like($state, qr/^(00000|55000)$/, 'a candidate that waits: ends without leading');
is(scalar(grep { $_->{is_leader} } @$rows), 0, 'P4: it does not lead');
is(scalar finish_query($admin), '00000', 'and the extension is dropped');

# A database with sessions that lead in it
$admin->do('CREATE DATABASE doomed');
my $doomed = connect_to($node, 'doomed');
$doomed->do('CREATE EXTENSION leader_election');
my $there = acquire($doomed, 'held', 'leader', '1 hour')->{epoch};
value($doomed, q{SELECT epoch FROM leader_acquire_session('session', 'leader')});
is(sqlstate($admin, 'DROP DATABASE doomed'), '55006', 'a database in use is not dropped');
is(sqlstate($admin, 'DROP DATABASE doomed WITH (FORCE)'), '00000', 'but by force');
isnt(sqlstate($doomed, 'SELECT 1'), '00000', 'with its sessions');
$admin->do('CREATE DATABASE doomed');
$doomed = connect_to($node, 'doomed');
$doomed->do('CREATE EXTENSION leader_election');
is(value($doomed, 'SELECT count(*) FROM leader_status'), 0, 'another one knows nothing of it');
ok(!is_leader(renew($doomed, 'held', $there)), 'P2: nor is the term led there');
cmp_ok(acquire($doomed, 'held', 'other', '1 hour')->{epoch}, '>', $there, 'P1: its epochs are higher');
ok(value($doomed, q{SELECT is_leader FROM leader_acquire_session('session', 'other')}),
	'and a session leads there');

done_testing();
