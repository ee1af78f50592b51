# Guards P1 across promotions: an epoch that a standby issues when it was
# promoted is higher than any that the old primary has issued, although the
# standby had not received the last terms.
#
# The wall clock is a lower bound of every epoch and so hides what the other
# rules are for.  Therefore one case first moves the counter far ahead of what
# the clock contributes; in the others nothing but the clock is left.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use File::Copy qw(copy);
use LeaderElection qw(:DEFAULT draw move_ahead promote);
use Test::More;

my $limit = 2**53;

sub higher
{
	my ($epoch, $than, $case) = @_;
	cmp_ok($epoch, '>', $than, "P1: $case");
	cmp_ok($epoch, '<', $limit, "$case: below 2^53");
	return;
}

# A primary with standbys that have everything that it had when they stopped.
sub new_family
{
	my ($name, $standbys, $prepare) = @_;
	my $primary = new_node("${name}_primary", streaming => 1);
	my $dbh = connect_to($primary);

	draw($dbh);
	$prepare->($dbh);
	$primary->backup('backup');
	my @standbys = map { new_standby($primary, "${name}_standby_$_", 'backup',
			"recovery_target_timeline = 'current'") } 1 .. $standbys;
	foreach my $standby (@standbys)
	{
		$standby->start;
		$primary->wait_for_catchup($standby, 'replay', $primary->lsn('flush'));
		$standby->stop;
	}
	return ($primary, $dbh, @standbys);
}

# The old primary draws, nobody receives it, the standby is promoted; then the
# next one, which knows nothing of the first one's epochs either, but that it
# was promoted.
{
	my ($primary, $old, $first, $second) =
	  new_family('lag', 2, \&move_ahead);
	my $lost = draw($old);
	$lost = draw($old) for 1 .. 5;
	$primary->stop('immediate');

	my $dbh = promote($first);
	my $epoch = draw($dbh);
	higher($epoch, $lost, 'promotion of a lagging standby');
	$lost = draw($dbh) for 1 .. 5;
	my ($history) = glob($first->data_dir . '/pg_wal/*.history');
	ok($history, 'the first promotion has begun a timeline');
	$first->stop('immediate');

	copy($history, $second->data_dir . '/pg_wal/') or die;
	$dbh = promote($second);
	$epoch = draw($dbh);
	higher($epoch, $lost, 'two promotions in a row: the second standby knows of the first only');

	# The jump is made once; a counter ahead of the clock grows with it at half
	# the speed.
	my $next = draw($dbh);
	cmp_ok($next - $epoch, '<', 2**32, 'and then they are drawn without a jump');
	$second->restart;
	$dbh = connect_to($second);
	cmp_ok(draw($dbh) - $next, '<', 2**32, 'also after a restart');
	$second->stop;
}

# The elections have rested for long, so that the counter lies far below the
# clock; then the old primary, whose clock is ahead by some seconds, draws, and
# nobody receives it.
foreach my $ahead (5, 600)
{
	my ($primary, $old, $standby) = new_family(
		"clock_$ahead", 1,
		sub {
			value($_[0], "SELECT setval('leader_election_epoch', 1)");
		});

	# What a clock that is ahead would add
	my $drawn = draw($old);
	value($old, 'SELECT setval(?, ?::bigint)', 'leader_election_epoch',
		$drawn + $ahead * 2**20);
	my $lost = draw($old);
	$primary->stop('immediate');

	my $dbh = promote($standby);
	my $epoch = draw($dbh);
	higher($epoch, $lost,
		"promoted standby with a clock $ahead s behind");

	# A promotion is not forgotten with the extension.
	$dbh->do('DROP EXTENSION leader_election');
	$standby->restart;
	$dbh = connect_to($standby);
	$dbh->do('CREATE EXTENSION leader_election');
	higher(draw($dbh), $epoch,
		"after a promotion, DROP EXTENSION, a restart and CREATE EXTENSION ($ahead)");
	check_tables($standby, "clock behind by $ahead");
	$standby->stop;
}

done_testing();
