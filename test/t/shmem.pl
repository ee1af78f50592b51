# The places of live leases in shared memory: there are as many as configured,
# they come back, and nothing grows.
#
# Guards the limit leader_election.max_leases, which must not harm those who
# lead, and the memory of server and backend over very many calls.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use Test::More;

my $places = 4;

# All shared memory: what was reserved, and what was made later, which lies in
# files where we can see it.
sub shared_memory
{
	my ($node, $dbh) = @_;
	my $bytes = value($dbh, 'SELECT sum(allocated_size) FROM pg_shmem_allocations WHERE name IS NOT NULL');

	$bytes += -s $_ for glob($node->data_dir . '/pg_dynshmem/mmap.*');
	return $bytes;
}

foreach my $preload (0, 1)
{
	my $mode = $preload ? 'preloaded' : 'not preloaded';
	my $node = new_node(
		"node$preload",
		preload => $preload,
		conf => <<EOC);
leader_election.max_leases = $places
dynamic_shared_memory_type = mmap
EOC
	my $dbh = connect_to($node);
	my $rival = connect_to($node);

	$dbh->do('CREATE DATABASE other');
	my $other = connect_to($node, 'other');
	$other->do('CREATE EXTENSION leader_election');

	# Two databases: same names, nothing else in common.
	my $here = acquire($dbh, 'job', 'leader', '1 hour');
	my $there = acquire($other, 'job', 'another', '1 hour');
	ok(is_leader($here) && is_leader($there),
		"$mode: the same name in two databases is two elections");
	isnt($here->{epoch}, $there->{epoch}, "$mode: with an epoch each");
	ok(!is_leader(renew($other, 'job', $here->{epoch})),
		"$mode: a term is renewed in its own database only");
	is_deeply(column($other, "SELECT election FROM leader_renew_all('leader')"),
		[], "$mode: leader_renew_all looks at its own database only");
	ok(value($other, 'SELECT leader_release(?, ?)', 'job', $there->{epoch}),
		"$mode: released in one");
	ok(is_leader(renew($dbh, 'job', $here->{epoch})),
		"$mode: and it goes on in the other");

	# All places taken, in both databases together
	my @terms = ($here);
	push @terms, acquire($dbh, "lease $_", 'leader', '1 hour') for 2 .. $places;
	is(scalar(grep { is_leader($_) } @terms), $places, "$mode: all places taken");
	foreach my $session ($dbh, $other)
	{
		is( sqlstate($session, "SELECT leader_acquire('too many', 'leader', '1 hour')"),
			'53400', "$mode: one too many");
		like($session->errstr, qr/leader_election\.max_leases/,
			"$mode: the message names the setting");
	}
	is(value($dbh, "SELECT count(*) FROM leader_status WHERE election = 'too many'"),
		0, "$mode: what was refused leaves nothing behind");
	is(scalar(@{ column($dbh, "SELECT epoch FROM leader_renew_all('leader')") }),
		$places, "$mode: those who lead go on");
	is(acquire($dbh, "lease $_", 'leader', '1 hour')->{epoch},
		$terms[ $_ - 1 ]->{epoch}, "$mode: lease $_ goes on by acquiring too")
	  for 2 .. $places;
	ok(!is_leader(acquire($rival, 'job', 'rival', '1 hour')),
		"$mode: and nobody else gets theirs");

	# A place comes back by a release, by its rollback it does not.
	$dbh->do('BEGIN');
	value($dbh, 'SELECT leader_release(?, ?)', 'lease 2', $terms[1]->{epoch});
	$dbh->do('ROLLBACK');
	is( sqlstate($rival, "SELECT leader_acquire('too many', 'leader', '1 hour')"),
		'53400', "$mode: no place by a release that was rolled back");
	value($dbh, 'SELECT leader_release(?, ?)', 'lease 2', $terms[1]->{epoch});
	$dbh->do('BEGIN');
	ok(is_leader(acquire($dbh, 'lease 2', 'leader', '1 hour')),
		"$mode: a place by a release");
	is( sqlstate($rival, "SELECT leader_acquire('too many', 'leader', '1 hour')"),
		'53400', "$mode: a term that has not been committed has its place");
	$dbh->do('ROLLBACK');
	ok(is_leader(acquire($rival, 'lease 2', 'short', '200 ms')),
		"$mode: the place comes back by a rollback");

	# And by running out, when the room is needed
	my $won = poll_until(
		sub {
			sqlstate($rival, "SELECT leader_acquire('after', 'leader', '200 ms')") eq '00000';
		},
		'a place to run out');
	ok($won, "$mode: the place of a lease that ran out is used again");
	ok(is_leader(renew($dbh, 'job', $here->{epoch})), "$mode: others go on");
	$won = poll_until(
		sub {
			sqlstate($other, "SELECT leader_acquire('after', 'leader', '200 ms')") eq '00000';
		},
		'a place to run out');
	ok($won, "$mode: also by another database");

	# One whose place was given away has lapsed for good.
	my $lapsed = row($dbh, "SELECT * FROM leader_status WHERE election = 'lease 2'");
	is($lapsed->{state}, 'expired', "$mode: a lease whose place was given away is over");
	ok(!is_leader(renew($dbh, 'lease 2', $lapsed->{epoch})),
		"$mode: P4: and stays so");

	# Nothing in shared memory grows with the number of terms.
	poll_until(
		sub {
			sqlstate($dbh, "SELECT leader_acquire('many', 'leader', '1 hour')") eq '00000';
		},
		'a place to run out');
	value($dbh, "SELECT leader_release('many', s.epoch) FROM leader_status s WHERE election = 'many'");
	is(sqlstate($dbh, <<'EOC'), '00000', "$mode: a first round of terms");
DO $$
DECLARE
    e bigint;
BEGIN
    FOR i IN 1 .. 100 LOOP
        SELECT a.epoch INTO e FROM leader_acquire('many', 'leader', '1 hour') a;
        PERFORM leader_release('many', e);
        COMMIT;
    END LOOP;
END $$
EOC
	my $before = shared_memory($node, $dbh);
	is(sqlstate($dbh, <<'EOC'), '00000', "$mode: very many terms");
DO $$
DECLARE
    e bigint;
BEGIN
    FOR i IN 1 .. 15000 LOOP
        SELECT a.epoch INTO e FROM leader_acquire('many', 'leader', '1 hour') a;
        COMMIT;
        IF NOT leader_release('many', e) THEN
            RAISE EXCEPTION 'not the leader in round %', i;
        END IF;
        COMMIT;
    END LOOP;
END $$
EOC
	is(shared_memory($node, $dbh), $before,
		"$mode: shared memory has not grown by it");

	# The same by terms that run out and by transactions that are rolled back.
	is(sqlstate($dbh, <<'EOC'), '00000', "$mode: many elections, all given back");
DO $$
BEGIN
    FOR i IN 1 .. 5000 LOOP
        BEGIN
            PERFORM leader_acquire('given back ' || i % 100, 'leader', '1 hour');
            RAISE EXCEPTION USING ERRCODE = 'QQ000';
        EXCEPTION WHEN SQLSTATE 'QQ000' THEN
            NULL;
        END;
        COMMIT;
    END LOOP;
END $$
EOC
	is(shared_memory($node, $dbh), $before,
		"$mode: shared memory has not grown by that either");
	ok(is_leader(renew($dbh, 'job', $here->{epoch})),
		"$mode: and the leader still leads");
	$node->stop;
}

# Sessions that led until they ended give their room back, in whatever way they
# ended and in whatever database: without a TTL nothing else would.
{
	my $node = new_node('sessions',
		conf => "leader_election.max_leases = $places\n");
	my %database = (here => 'postgres', 'another database' => 'other');

	connect_to($node)->do('CREATE DATABASE other');
	connect_to($node, 'other')->do('CREATE EXTENSION leader_election');
	my %bidder = map { $_ => connect_to($node, $database{$_}) } keys %database;
	my %ways = (
		'disconnect' => sub { $_[0]->disconnect; },
		'DISCARD ALL' => sub { $_[0]->do('DISCARD ALL'); },
		'pg_advisory_unlock_all' =>
		  sub { value($_[0], 'SELECT pg_advisory_unlock_all()'); });

	# A bid may come too early: sessions are asked now and then only, and one
	# whose client is gone may not have noticed yet.
	my $wins = sub {
		my ($session, $election) = @_;
		my $bid =
		  "SELECT is_leader::int FROM leader_acquire('$election', 'next', '1 hour')";

		return 0
		  unless eval {
			poll_until(
				sub {
					my $won = eval { value($session, $bid) };
					die $@ if $@ && $session->state ne '53400';
					$won;
				},
				'room');
		  };
		my $epoch = value($session,
			'SELECT epoch FROM leader_status WHERE election = ? AND leader = ?',
			$election, 'next');
		return value($session, 'SELECT leader_release(?, ?)', $election, $epoch);
	};

	foreach my $where (sort keys %database)
	{
		foreach my $way (sort keys %ways)
		{
			my ($same, $elsewhere) = sort {
				($a ne $where) <=> ($b ne $where)
			} keys %bidder;

			foreach my $wanted (
				[ 'for the election that one of them led', $same, "$way 1" ],
				[ 'for another election', $same, 'other' ],
				[ 'for one in a second database', $elsewhere, 'other' ])
			{
				my ($what, $by, $election) = @$wanted;
				my @leaders = map { connect_to($node, $database{$where}) } 1 .. $places;
				my $led = 0;

				# What the last round left is dead as well.
				foreach my $i (1 .. $places)
				{
					eval {
						poll_until(
							sub {
								my $is = eval {
									value($leaders[ $i - 1 ],
										'SELECT is_leader FROM leader_acquire_session(?)',
										"$way $i");
								};
								$led++ if $is;
								$is;
							},
							'a term of a session');
					};
				}
				is($led, $places, "$where, $way: sessions take all places");
				is( sqlstate($bidder{$by},
						"SELECT leader_acquire('too many', 'next', '1 hour')"),
					'53400', "$where, $way: no room while they live");
				is( value($leaders[0], 'SELECT is_leader FROM leader_acquire_session(?)',
						"$way 1"),
					1, "$where, $way: and they go on leading");
				$ways{$way}->($_) for @leaders;
				ok($wins->($bidder{$by}, $election),
					"$where, $way: room again $what");
				$_->disconnect for @leaders;
			}
		}
	}
}

# The memory of one backend, over very many calls
{
	my $node = new_node('backend');
	my $dbh = connect_to($node);

	value($dbh, 'SELECT 1');
	$dbh->do('CREATE TABLE protected (entry int)');
	value($dbh, "SELECT leader_protect('protected', 'held')");
	my $held = acquire($dbh, 'held', 'leader', '1 hour')->{epoch};

	my %calls = (
		'acquire and release' => <<'EOC',
SELECT a.epoch INTO e FROM leader_acquire('often', 'leader', '1 hour') a;
PERFORM leader_release('often', e);
EOC
		'an acquire rolled back in a block' => <<'EOC',
BEGIN
    PERFORM leader_acquire('often', 'leader', '1 hour');
    RAISE EXCEPTION USING ERRCODE = 'QQ000';
EXCEPTION WHEN SQLSTATE 'QQ000' THEN
    NULL;
END;
EOC
		'renew, check and a losing bid' => <<'EOC',
PERFORM leader_renew('held', held);
PERFORM leader_check('held', held);
PERFORM leader_acquire('held', 'other');
PERFORM count(*) FROM leader_renew_all('leader');
EOC
		'fence' => <<'EOC',
PERFORM leader_fence('held', held);
INSERT INTO protected VALUES (1);
EOC
		'metadata' => <<'EOC',
PERFORM leader_set_metadata('held', held, '{"a": 1}');
EOC
	);
	foreach my $what (sort keys %calls)
	{
		my $many = sub {
			my ($rounds) = @_;
			$dbh->do(sprintf <<'EOC', $held, $rounds, $calls{$what});
DO $body$
DECLARE
    e bigint;
    held bigint := %s;
BEGIN
    FOR i IN 1 .. %d LOOP
        %s
        COMMIT;
    END LOOP;
END $body$
EOC
		};
		my $used = sub {
			return value($dbh, 'SELECT sum(used_bytes) FROM pg_backend_memory_contexts');
		};

		$many->(200);
		$used->();
		my $before = $used->();
		$many->(10_000);
		cmp_ok($used->() - $before, '<', 20_000,
			"$what: two bytes for a call would be noticed");
	}

	# In one transaction too, for what does not add to what it has done.
	$dbh->do('BEGIN');
	value($dbh, 'SELECT leader_fence(?, ?)', 'held', $held);
	my $calls = "SELECT count(leader_fence('held', $held)),
		count(leader_check('held', $held)), count(leader_renew('held', $held)),
		count(leader_acquire('held', 'other'))
		FROM generate_series(1, %d)";
	my $used = 'SELECT sum(used_bytes) FROM pg_backend_memory_contexts';
	$dbh->selectall_arrayref(sprintf $calls, 100);
	value($dbh, $used);
	my $before = value($dbh, $used);
	$dbh->selectall_arrayref(sprintf $calls, 20_000);
	cmp_ok(value($dbh, $used) - $before, '<', 20_000,
		'one transaction: a byte for a call would be noticed');
	is(sqlstate($dbh, 'COMMIT'), '00000', 'and it commits');
}

done_testing();
