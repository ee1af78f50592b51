# A change that had to queue for an election, and then finds that it comes late.
#
# Guards that it keeps no lock: nothing was changed, so no time limit would end a
# transaction that sits on one (P3), and a prepared one would keep it for ever.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use Test::More;

my $node = new_node('main', conf => "deadlock_timeout = 10s\n");
my ($first, $late, $dbh) = map { connect_to($node) } 1 .. 3;

# The late one queues behind the first one's change and then gets its lock.  On a
# slow machine it may wait in vain, which is not what this is about: once more.
sub comes_late
{
	my ($statement) = @_;
	my $state;

	for my $try (1 .. 20)
	{
		my $term = acquire($dbh, 'queued', 'leader', '1 hour');

		$first->do('BEGIN');
		value($first, 'SELECT leader_release(?, ?)', 'queued', $term->{epoch});
		$late->do('BEGIN');
		start_query($late, $statement, $term->{epoch});
		wait_for_state($dbh, backend_pid($late), qr/Lock object|idle in transaction/);
		$first->do('COMMIT');
		my ($ended, $rows) = finish_query($late);
		return $rows->[0]->{did} if $ended eq '00000';
		is($ended, '55P03', 'it can wait in vain');
		$late->do('ROLLBACK');
	}
	return;
}

foreach my $late_change (
	[ 'release' => q{SELECT leader_release('queued', ?)::int AS did} ],
	[ 'metadata' => q{SELECT leader_set_metadata('queued', ?, '{}')::int AS did} ])
{
	my ($name, $statement) = @$late_change;
	my @warnings;

	local $SIG{__WARN__} = sub { push @warnings, @_ };
	is(comes_late($statement), 0, "$name: too late");
	is( value($late, q{SELECT count(*) FROM pg_locks WHERE locktype = 'object'
			AND classid = 'leader_election_state'::regclass AND pid = pg_backend_pid()}),
		0, "P3: $name: no lock is kept");
	is_deeply(\@warnings, [], "$name: and nothing to warn of");
	ok(is_leader(acquire($dbh, 'queued', 'next', '1 hour')),
		"P3: $name: others can acquire");
	$late->do('COMMIT');
	value($dbh, q{SELECT leader_release('queued', epoch) FROM leader_status});
}

done_testing();
