# PREPARE TRANSACTION would keep an election's lock for as long as nobody
# comes to finish it, and COMMIT PREPARED runs none of the extension's code.
#
# Guards P2 and P3: it is refused for whatever used a token or changed an
# election, and for nothing else.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use Test::More;

my $node = new_node('main', conf => 'max_prepared_transactions = 10');
my $dbh = connect_to($node);
my $prepared = 0;

$dbh->do('CREATE TABLE protected (entry int)');
$dbh->do('CREATE TABLE unrelated (entry int)');
value($dbh, "SELECT leader_protect('protected', 'held')");

my $epoch = acquire($dbh, 'held', 'leader', '1 hour')->{epoch};

sub prepare
{
	my ($case, $expected, @sql) = @_;
	my $session = connect_to($node);
	my $name = 'prepared ' . $prepared++;

	$session->do('BEGIN');
	foreach my $sql (@sql)
	{
		my $text = $sql =~ s/%s/$epoch/r;
		is(sqlstate($session, $text), '00000', "$case: $text")
		  if $text !~ m{1/0};
		sqlstate($session, $text) if $text =~ m{1/0};
	}
	is(sqlstate($session, "PREPARE TRANSACTION '$name'"), $expected, $case);
	is( value($dbh, 'SELECT count(*) FROM pg_prepared_xacts WHERE gid = ?', $name),
		$expected eq '00000' ? 1 : 0, "$case: as pg_prepared_xacts shows");
	is(sqlstate($session, 'SELECT 1'), '00000', "$case: the session goes on");

	# A refusal is a rollback: others find everything as it was.
	ok(is_leader(renew($dbh, 'held', $epoch)), "$case: the term goes on");
	is(sqlstate($dbh, "COMMIT PREPARED '$name'"), '00000', "$case: committed later")
	  if $expected eq '00000';
	return;
}

prepare('fenced', '0A000', "SELECT leader_fence('held', %s)");
prepare('fenced in a subtransaction that is kept',
	'0A000', 'SAVEPOINT s', "SELECT leader_fence('held', %s)", 'RELEASE s');
prepare('token in the setting, used', '0A000',
	"SET LOCAL leader_election.fence = 'held=%s'",
	'INSERT INTO protected VALUES (1)');
prepare('acquired', '0A000', "SELECT leader_acquire('new', 'leader', '1 hour')");
ok(is_leader(acquire($dbh, 'new', 'other', '1 hour')),
	'what the refused transaction acquired is free');
prepare('released', '0A000', "SELECT leader_release('held', %s)");
prepare('metadata', '0A000', "SELECT leader_set_metadata('held', %s, '{}')");

prepare('unrelated', '00000', 'INSERT INTO unrelated VALUES (1)');
prepare('renewed', '00000',
	'INSERT INTO unrelated VALUES (2)', "SELECT leader_renew('held', %s)");
prepare('renewed by acquiring', '00000',
	'INSERT INTO unrelated VALUES (3)', "SELECT leader_acquire('held', 'leader')");
prepare('a losing bid', '00000',
	'INSERT INTO unrelated VALUES (4)', "SELECT leader_acquire('held', 'other')");
prepare('token in the setting, not used', '00000',
	"SET LOCAL leader_election.fence = 'held=%s'",
	'INSERT INTO unrelated VALUES (5)');
prepare('a fence that was rolled back', '00000',
	'INSERT INTO unrelated VALUES (6)', 'SAVEPOINT s',
	"SELECT leader_fence('held', %s)", 'ROLLBACK TO s');
prepare('an acquire that was rolled back', '00000',
	'INSERT INTO unrelated VALUES (7)', 'SAVEPOINT s',
	"SELECT leader_acquire('newer', 'leader', '1 hour')", 'ROLLBACK TO s');
is_deeply(column($dbh, 'SELECT entry FROM unrelated ORDER BY 1'),
	[ 1 .. 7 ], 'everything that may be prepared was committed');
is(value($dbh, 'SELECT count(*) FROM protected'),
	0, 'and nothing that may not');

done_testing();
