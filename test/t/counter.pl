# Guards P1: an epoch names one term, and epochs grow in the order of grants,
# whatever becomes of the counter: the extension dropped and created again, an
# older dump restored, the counter set back, rows removed, and restarts.  For
# promotions see promotion.pl.
#
# The wall clock is a lower bound of every epoch and so hides what the other
# rules are for.  Therefore most cases first move the counter far ahead of what
# the clock contributes; those where nothing but the clock is left do not.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection qw(:DEFAULT draw move_ahead);
use PostgreSQL::Test::Utils;
use Test::More;

my $limit = 2**53;

sub higher
{
	my ($epoch, $than, $case) = @_;
	cmp_ok($epoch, '>', $than, "P1: $case");
	cmp_ok($epoch, '<', $limit, "$case: below 2^53");
	return;
}

# The counter is no lower than what was drawn, and at most 1/16 s ahead of it.
sub counter_covers
{
	my ($session, $epoch, $case) = @_;
	my $counter = value($session, 'SELECT last_value FROM leader_election_epoch');
	cmp_ok($counter, '>=', $epoch, $case);
	cmp_ok($counter, '<=', $epoch + 2**16, "$case: at most 1/16 s ahead");
	return;
}

#
# One server
#

my $node = new_node('main');
my $dbh = connect_to($node);

# An ordinary sequence of grants, from several sessions
{
	my @sessions = map { connect_to($node) } 1 .. 4;
	my @epochs = map { draw($sessions[ $_ % 4 ], 'same ' . $_ % 3) } 1 .. 40;

	is_deeply([ sort { $a <=> $b } @epochs ], \@epochs, 'P1: epochs grow');
	my %seen;
	is(scalar(grep { $seen{$_}++ } @epochs), 0, 'P1: none is drawn twice');
	cmp_ok($epochs[-1], '<', $limit, 'below 2^53');
}

# Grants that come thick and fast, also at the same moment: most of them draw what
# was reserved, and the counter is still ahead of each.
{
	my $script = $node->basedir . '/terms.sql';
	my $before = draw($dbh);

	append_to_file($script, <<'EOC');
SELECT (leader_acquire('dense ' || :client_id, 'leader')).epoch AS e \gset
SELECT leader_release('dense ' || :client_id, :e);
EOC
	my ($out, $err) = run_command(
		[
			'pgbench', '-n', '-M', 'prepared', '-c', 8, '-j', 2, '-T', 3, '-f', $script,
			'-h', $node->host, '-p', $node->port, 'postgres'
		]);
	unlike($err, qr/ERROR|FATAL/, 'no error where grants are dense');
	my $terms = row($dbh, q{SELECT count(*) AS terms, count(DISTINCT epoch) AS epochs, max(epoch) AS last
		FROM leader_term WHERE election LIKE 'dense %'});
	cmp_ok($terms->{terms}, '>', 500, 'grants were dense');
	is($terms->{epochs}, $terms->{terms}, 'P1: none is drawn twice where grants are dense');
	higher($terms->{last}, $before, 'where grants are dense');
	counter_covers($dbh, $terms->{last}, 'after dense grants');

	# The look at the counter comes first, so later grants do not hide earlier ones.
	my $uncovered = 0;
	foreach (1 .. 300)
	{
		my $epoch = draw($dbh, 'sparse');
		$uncovered++
		  if value($dbh, 'SELECT last_value FROM leader_election_epoch') < $epoch;
	}
	is($uncovered, 0, 'P1: the counter never lags');
}

# A row that came from elsewhere, with an epoch just above the clock but below what
# is reserved here
{
	my $lowered = 0;

	draw($dbh, 'foreign');
	$dbh->do('SET session_replication_role = replica');
	foreach (1 .. 20)
	{
		my ($before) = $dbh->selectrow_array(q{
			WITH here AS MATERIALIZED (
				SELECT (leader_acquire('here ' || random(), 'leader')).epoch AS epoch),
			reserved AS MATERIALIZED (
				SELECT pg_sequence_last_value('leader_election_epoch') AS counter FROM here WHERE epoch > 0),
			foreign_row AS MATERIALIZED (
				UPDATE leader_election_state SET epoch = counter - 100 FROM reserved WHERE election = 'foreign'
				RETURNING counter)
			SELECT counter FROM foreign_row});
		my $epoch = draw($dbh, 'foreign');

		cmp_ok($epoch, '>', $before - 100, 'P1: above the row that came') or last;
		$lowered++ if value($dbh, 'SELECT last_value FROM leader_election_epoch') < $before;
	}
	$dbh->do('RESET session_replication_role');
	is($lowered, 0, 'P1: the counter is never lowered');
}

# A rolled back grant does not give its epoch back.
foreach my $far (0, 1)
{
	my $case = $far ? 'counter ahead of the clock' : 'counter with the clock';

	move_ahead($dbh) if $far;
	my $last = draw($dbh);
	is(value($dbh, 'SELECT last_value FROM leader_election_epoch'), $last,
		"$case: nothing is reserved")
	  if $far;
	$dbh->do('BEGIN');
	my $lost = acquire($dbh, 'rolled back', 'leader', '1 hour')->{epoch};
	higher($lost, $last, "$case: a grant that will be rolled back");
	$dbh->do('SAVEPOINT s');
	my $sub = acquire($dbh, 'in a savepoint', 'leader', '1 hour')->{epoch};
	higher($sub, $lost, "$case: one in a subtransaction");
	$dbh->do('ROLLBACK TO s');
	my $again = acquire($dbh, 'in a savepoint', 'leader', '1 hour')->{epoch};
	higher($again, $sub, "$case: its repetition");
	$dbh->do('ROLLBACK');
	higher(draw($dbh, 'rolled back'), $again, "$case: after the rollback");
}

# The same database, far ahead of the clock: what was drawn since the server
# started is remembered in memory.
{
	my $last = draw($dbh);

	value($dbh, "SELECT setval('leader_election_epoch', 1)");
	my $epoch = draw($dbh);
	higher($epoch, $last, 'after the counter was set back');

	$dbh->do('DROP EXTENSION leader_election');
	$dbh->do('CREATE EXTENSION leader_election');
	$last = $epoch;
	$epoch = draw($dbh);
	higher($epoch, $last, 'after DROP and CREATE EXTENSION');

	$dbh->do('DROP EXTENSION leader_election');
	$dbh->do('CREATE SCHEMA elsewhere');
	$dbh->do('CREATE EXTENSION leader_election SCHEMA elsewhere');
	$dbh->do('SET search_path = elsewhere, public');
	$last = $epoch;
	$epoch = draw($dbh);
	higher($epoch, $last, 'after CREATE EXTENSION in another schema');
	$dbh->do('RESET search_path');
	$dbh->do('DROP EXTENSION leader_election');
	$dbh->do('CREATE EXTENSION leader_election');

	# Rows that came without the counter, as logical replication brings them
	$last = acquire($dbh, 'row ahead', 'leader', '1 hour')->{epoch};
	higher($last, $epoch, 'a term');
	value($dbh, "SELECT setval('leader_election_epoch', 1)");
	$node->restart;
	$dbh = connect_to($node);
	value($dbh, 'SELECT leader_release(?, ?)', 'row ahead', $last);
	higher(draw($dbh, 'row ahead'), $last, 'a row that is ahead of the counter');
}

# A dump and its restore, into the database that went on since
sub dump_and_restore
{
	my ($case, $restore) = @_;
	my $dump = $node->basedir . "/dump";

	$node->command_ok(
		[ 'pg_dump', '-Fc', '-f', $dump, 'postgres' ], "$case: dumped");
	my $last = draw($dbh);
	$last = draw($dbh) for 1 .. 3;
	$restore->($dump);
	higher(draw($dbh), $last, "$case, after the restore");
	return;
}

move_ahead($dbh);
draw($dbh);
dump_and_restore(
	'data only',
	sub {
		my ($dump) = @_;
		$dbh->do('DROP EXTENSION leader_election');
		$dbh->do('CREATE EXTENSION leader_election');
		$node->command_ok(
			[ 'pg_restore', '--data-only', '-d', $node->connstr('postgres'), $dump ],
			'data restored');
	});
dump_and_restore(
	'the counter alone',
	sub {
		my ($dump) = @_;
		my ($out, $err) = run_command(
			[ 'pg_restore', '-f', '-', '--data-only', $dump ]);
		my @lines = grep { /setval/ } split /\n/, $out;
		cmp_ok(scalar @lines, '>', 0, 'the counter is in the dump');
		value($dbh, $_) for @lines;
	});
dump_and_restore(
	'into a new database',
	sub {
		my ($dump) = @_;
		$dbh->do('CREATE DATABASE restored');
		$node->command_ok(
			[ 'pg_restore', '-d', $node->connstr('restored'), $dump ],
			'restored');
		$dbh = connect_to($node, 'restored');
	});
$dbh = connect_to($node);

# Each database has its own: one whose epochs are used up, or far ahead, neither
# stops nor drags the others.
{
	my %other = map {
		$dbh->do("CREATE DATABASE $_");
		my $session = connect_to($node, $_);
		$session->do('CREATE EXTENSION leader_election');
		$_ => $session;
	} qw(used_up drawn_before drawn_after);
	my $before = draw($other{drawn_before});
	my $near = sprintf '%d', $limit - 2;

	cmp_ok($before, '<', 2**50, 'a new database draws by the clock');
	$other{used_up}->do('ALTER TABLE leader_election_state
		DISABLE TRIGGER leader_election_guard');
	$other{used_up}->do("INSERT INTO leader_election_state
		VALUES ('high', current_user, 'l', 1000000, 1, $near, now(), NULL)");
	cmp_ok(draw($other{used_up}, 'high'), '==', $limit - 1,
		'a row near the limit: the last epoch');
	is(sqlstate($other{used_up}, q{SELECT leader_acquire('next', 'leader', '1 hour')}),
		'2200H', 'and then they are used up');
	foreach my $name (qw(drawn_before drawn_after))
	{
		my $epoch = draw($other{$name});
		cmp_ok($epoch, '<', 2**50, "another database is not dragged along, $name");
		higher($epoch, $before, "another database goes on, $name") if $name eq 'drawn_before';
		counter_covers($other{$name}, $epoch, "nor is its counter, $name");
	}
	$_->disconnect for values %other;
}

# Terms and restored rows: a held one is held, under its epoch.
{
	my $held = acquire($dbh, 'held in the dump', 'leader', '1 hour')->{epoch};
	dump_and_restore(
		'with a held lease',
		sub {
			my ($dump) = @_;
			$dbh->do('CREATE DATABASE restored_held');
			$node->command_ok(
				[ 'pg_restore', '-d', $node->connstr('restored_held'), $dump ],
				'restored');
			my $there = connect_to($node, 'restored_held');
			is( value($there,
					"SELECT epoch FROM leader_status WHERE election = 'held in the dump'"),
				$held, 'a held lease comes with its epoch');
		});
}

# After a restart nothing but the clock knows of what was lost.
my $natural = new_node('natural');
$dbh = connect_to($natural);
{
	my $last = draw($dbh);

	$natural->restart;
	$dbh = connect_to($natural);
	my $epoch = draw($dbh);
	higher($epoch, $last, 'after a restart');

	$last = $epoch;
	value($dbh, "SELECT setval('leader_election_epoch', 1)");
	$natural->restart;
	$dbh = connect_to($natural);
	$epoch = draw($dbh);
	higher($epoch, $last, 'after the counter was set back, and a restart');

	$last = $epoch;
	$dbh->do('DROP EXTENSION leader_election');
	$natural->restart;
	$dbh = connect_to($natural);
	$dbh->do('CREATE EXTENSION leader_election');
	$epoch = draw($dbh);
	higher($epoch, $last, 'after DROP EXTENSION, a restart and CREATE EXTENSION');

	# Rows removed and the counter set back by a superuser who insists
	$last = draw($dbh, 'removed');
	$dbh->do('SET session_replication_role = replica');
	$dbh->do('DELETE FROM leader_election_state');
	$dbh->do('RESET session_replication_role');
	value($dbh, "SELECT setval('leader_election_epoch', 1)");
	$natural->stop('immediate');
	$natural->start;
	$dbh = connect_to($natural);
	higher(draw($dbh, 'removed'), $last, 'after the rows were removed, and a crash');
}
$natural->stop;

done_testing();
