# The main story with real processes.  A leader is frozen in the middle of a
# fenced transaction, either the client or the server process behind it;
# another one takes over when the lease has run out; the frozen one comes back
# and commits.
#
# Guards P2 (its commit is refused), P3 (the takeover does not wait for it) and
# P4 (the takeover is not earlier than the holder was told), in the three
# isolation levels.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use Test::More;

my $node = new_node('main');
my $dbh = connect_to($node);
my $rival = connect_to($node);

$dbh->do(<<'EOC');
CREATE TABLE ledger (election text, epoch bigint, entry int);
CREATE TABLE protected (election text, entry int);
SELECT leader_protect('protected', 'frozen');
EOC

# A lease which the tests wait to run out.
my $ttl = '700 ms';

# Bids until it wins; no bid that is answered before $not_before may.
sub take_over
{
	my ($election, $not_before) = @_;
	my $early = 0;

	my $won = poll_until(
		sub {
			my $bid = acquire($rival, $election, 'rival', '1 hour');
			$early++ if is_leader($bid) && now() < $not_before;
			is_leader($bid) ? $bid : undef;
		},
		"the takeover of $election");
	is($early, 0, 'P4: no takeover before the time told had passed');
	return $won;
}

for my $level ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
{
	for my $frozen ('client', 'backend')
	{
		my $case = "$level, $frozen frozen";
		my $election = lc "$level $frozen";
		my $leader = spawn_worker($node);
		my $victim = $frozen eq 'client' ? $leader->{pid} : $leader->{backend};

		# The time that the holder was told counts from before it was.
		my $told_at = now();
		my $term = acquire($dbh, $election, 'leader', $ttl);
		my $not_before = $told_at + $term->{expires_in};
		ok(is_leader($term), "$case: led");
		my $epoch = $term->{epoch};

		is($leader->{run}->("BEGIN ISOLATION LEVEL $level"), '00000', "$case: begun");
		is($leader->{run}->("SELECT leader_fence('$election', $epoch)"),
			'00000', "$case: P2: token presented in time");
		is( $leader->{run}
			  ->("INSERT INTO ledger VALUES ('$election', $epoch, 1)"),
			'00000', "$case: written");
		kill 'STOP', $victim;

		my $new = take_over($election, $not_before);
		cmp_ok($new->{epoch}, '>', $epoch, "$case: P1: a new, higher epoch");
		is( value($dbh,
				'SELECT state FROM pg_stat_activity WHERE pid = ?',
				$leader->{backend}),
			'idle in transaction',
			"$case: P3: the old leader's transaction is still open");

		$rival->do('BEGIN');
		value($rival, 'SELECT leader_fence(?, ?)', $election, $new->{epoch});
		$rival->do('INSERT INTO ledger VALUES (?, ?, 2)',
			undef, $election, $new->{epoch});
		is(sqlstate($rival, 'COMMIT'), '00000', "$case: the new leader works");

		# A frozen server process finds it in its socket, a frozen client sends
		# it when it comes back.
		$leader->{ask}->('COMMIT');
		kill 'CONT', $victim;
		is($leader->{answer}->(), 'LE001', "$case: P2: late commit refused");

		is_deeply(
			column($dbh, 'SELECT entry FROM ledger WHERE election = ?', $election),
			[2], "$case: only the new leader has written");
		is($leader->{run}->("SELECT leader_fence('$election', $epoch)"),
			'LE001', "$case: the old token is refused at once now");
		ok(!is_leader(renew($dbh, $election, $epoch)),
			"$case: the old term cannot be renewed");
		ok(is_leader(renew($dbh, $election, $new->{epoch})),
			"$case: the new one can");
		$leader->{end}->();
	}
}

# The same with a protected table and a token in the setting, and with the
# leader frozen before its transaction has begun: refused at the write.
{
	my $leader = spawn_worker($node);
	my $told_at = now();
	my $term = acquire($dbh, 'frozen', 'leader', $ttl);

	is($leader->{run}->("SET leader_election.fence = 'frozen=$term->{epoch}'"),
		'00000', 'token in a setting');
	is($leader->{run}->("INSERT INTO protected VALUES ('frozen', 1)"),
		'00000', 'the leader writes');
	$leader->{run}->('BEGIN');
	is($leader->{run}->("INSERT INTO protected VALUES ('frozen', 2)"),
		'00000', 'and writes more');
	kill 'STOP', $leader->{backend};
	take_over('frozen', $told_at + $term->{expires_in});
	$leader->{ask}->('COMMIT');
	kill 'CONT', $leader->{backend};
	is($leader->{answer}->(), 'LE001', 'P2: late commit of a protected table refused');

	is($leader->{run}->("INSERT INTO protected VALUES ('frozen', 3)"),
		'LE001', 'P2: late write of a protected table refused');
	is_deeply(column($dbh, 'SELECT entry FROM protected ORDER BY 1'),
		[1], 'what was committed in time stays, and nothing else');
	$leader->{end}->();
}

# A snapshot from before the takeover does not make an old token current.
for my $level ('REPEATABLE READ', 'SERIALIZABLE')
{
	my $election = lc "snapshot $level";
	my $told_at = now();
	my $term = acquire($dbh, $election, 'leader', $ttl);

	$dbh->do("BEGIN ISOLATION LEVEL $level");
	value($dbh, 'SELECT count(*) FROM ledger');
	take_over($election, $told_at + $term->{expires_in});
	is(sqlstate($dbh, 'SELECT leader_fence(?, ?)', $election, $term->{epoch}),
		'LE001', "$level: P2: an old snapshot sees the takeover");
	$dbh->do('ROLLBACK');
}

done_testing();
