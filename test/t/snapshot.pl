# Guards P1 where a server or a database goes back to an older state: a copy of
# the data directory, a base backup, a database used as a template, an older
# dump loaded over a newer database.  What was granted since is known to nobody
# there, so that nothing but the clock, which runs as it does, and what epochs
# are ahead of it by, keep the next epochs above those.
#
# counter.pl has the counter moved ahead of the clock, dump.pl what a dump
# brings back.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $counter = 0;
my %drawn;

# Begins a new term and ends it again.  Each epoch must be above all that were
# drawn before in the same history.
sub draw
{
	my ($history, $dbh, $case) = @_;
	my $name = 'drawn ' . $counter++;
	my $epoch = acquire($dbh, $name, 'leader', '1 hour')->{epoch};

	value($dbh, 'SELECT leader_release(?, ?)', $name, $epoch);
	cmp_ok($epoch, '>', $drawn{$history}, "P1: $case") if defined $drawn{$history};
	$drawn{$history} = $epoch;
	return $epoch;
}

sub draw_some
{
	my ($history, $dbh, $case) = @_;
	draw($history, $dbh, "$case, $_") for 1 .. 3;
	return;
}

sub recreate
{
	my ($node, $database) = @_;
	my $dbh = connect_to($node, $database);

	$dbh->do('DROP EXTENSION leader_election CASCADE');
	$dbh->disconnect;
	$node->restart;
	$dbh = connect_to($node, $database);
	$dbh->do('CREATE EXTENSION leader_election');
	return $dbh;
}

# The server's history goes on in another timeline, as after a promotion or a
# recovery from an archive.
sub begin_timeline
{
	my ($node) = @_;

	$node->stop;
	append_to_file($node->data_dir . '/recovery.signal', '');
	$node->append_conf('postgresql.conf', "restore_command = 'false'");
	$node->start;
	$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()')
	  or die 'no end of recovery';
	return connect_to($node);
}

# A server from a backup, with nothing but what stands in it
sub restored
{
	my ($origin, $name, $backup) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init_from_backup($origin, $backup);
	$node->start;
	return $node;
}

my $node = new_node('main', streaming => 1);
my $dbh = connect_to($node);
$dbh->do('CREATE TABLE protected (id int)');
value($dbh, q{SELECT leader_protect('protected', 'held')});

my $held = acquire($dbh, 'held', 'leader', '1 hour')->{epoch};
my $released = acquire($dbh, 'released', 'leader', '1 hour')->{epoch};
value($dbh, q{SELECT leader_release('released', ?)}, $released);
draw_some('server', $dbh, 'before');

#
# A copy of the data directory, and a base backup
#

$node->backup('base');
$node->stop;
$node->backup_fs_cold('cold');
$node->start;

# What the copies do not know of: the lease changed hands, and another was won.
$dbh = connect_to($node);
value($dbh, q{SELECT leader_release('held', ?)}, $held);
my $newer = acquire($dbh, 'held', 'newer', '1 hour')->{epoch};
my $unknown = acquire($dbh, 'unknown', 'leader', '1 hour')->{epoch};
draw_some('server', $dbh, 'after the snapshots');
$node->stop;

foreach my $backup ('cold', 'base', 'cold again')
{
	my $case = "restored from a $backup copy";
	my $copy = restored($node, $backup =~ tr/ /_/r, $backup =~ s/ .*//r);

	$dbh = connect_to($copy);
	is(acquire($dbh, 'held', 'rival', '1 hour')->{leader},
		'leader', "P5: $case: a lease that it knows of is held");
	ok(is_leader(renew($dbh, 'held', $held)), "P5: $case: its holder goes on");
	ok(!is_leader(renew($dbh, 'held', $newer)), "$case: who got it later does not");
	is(sqlstate($dbh, q{SELECT leader_fence('held', ?)}, $newer),
		'LE003', "$case: nor is his token good");
	is(sqlstate($dbh, q{INSERT INTO protected VALUES (1)}),
		'LE002', "$case: a protected table is protected");

	# An election that it does not know of, or knows to be free
	foreach my $election ('unknown', 'released')
	{
		my $term = acquire($dbh, $election, 'other', '1 hour');

		cmp_ok($term->{epoch}, '>', $drawn{server}, "P1: $case: \"$election\", its next epoch");
		$drawn{server} = $term->{epoch};
		value($dbh, 'SELECT leader_release(?, ?)', $election, $term->{epoch});
	}
	is(sqlstate($dbh, q{SELECT leader_fence('unknown', ?)}, $unknown),
		'LE001', "$case: then the token from before is stale");
	draw_some('server', $dbh, $case);

	$dbh = recreate($copy, 'postgres');
	draw_some('server', $dbh, "$case, the extension dropped, a restart, and created");
	$copy->stop;
}

# The first server is the copy of a later state now.
$node->start;
$dbh = connect_to($node);
draw_some('server', $dbh, 'the first server again');

#
# A server that was promoted is ahead of the clock, and so is its copy.
#

$dbh = begin_timeline($node);
draw_some('server', $dbh, 'in the next timeline');
$node->stop;
$node->backup_fs_cold('promoted');
$node->start;
$dbh = connect_to($node);
draw_some('server', $dbh, 'in the next timeline, after the snapshot');
$node->stop;
{
	my $case = 'restored from a copy of a promoted server';
	my $copy = restored($node, 'promoted', 'promoted');

	draw_some('server', connect_to($copy), $case);
	$dbh = recreate($copy, 'postgres');
	draw_some('server', $dbh, "$case, the extension dropped, a restart, and created");
	$copy->stop;
}

#
# Older dumps on a newer server
#

$node->start;
$dbh = connect_to($node);
my $dump = $node->basedir . '/dump';

# Moves a database by dump and restore, as often as one likes.
sub dump_database
{
	my ($database, $file) = @_;
	return $node->command_ok([ qw(pg_dump -Fc -f), $file, $database ], "$database dumped");
}

sub restore_dump
{
	my ($file, $database, @options) = @_;
	return $node->command_ok(
		[ qw(pg_restore --exit-on-error), @options, '-d', $database, $file ],
		"restored into $database");
}

# Over a newer state of the same database; the server has been restarted since,
# so that its memory does not help.
{
	my $case = 'an older dump over a newer database';
	my $other = 'over';

	$dbh->do("CREATE DATABASE $other");
	my $there = connect_to($node, $other);
	$there->do('CREATE EXTENSION leader_election');
	draw_some($other, $there, 'a database');
	dump_database($other, $dump);

	foreach my $how ('--clean', '--data-only')
	{
		draw_some($other, $there, "$case, $how, before");
		$there->disconnect;
		recreate($node, $other)->disconnect if $how eq '--data-only';
		restore_dump($dump, $other, $how);
		$node->restart;
		$there = connect_to($node, $other);
		draw_some($other, $there, "$case, $how");
	}
	$there->disconnect;
	draw_some($other, recreate($node, $other),
		"$case, then the extension dropped, a restart, and created");
}

# Into another database, to which the service moves, and back to the older dump
# after that.
{
	my $case = 'moved by a dump';
	my $history = 'moved';
	my $later = "$dump.later";

	$dbh = connect_to($node);
	$dbh->do("CREATE DATABASE moved_$_") for 0 .. 3;
	my $there = connect_to($node, 'moved_0');
	$there->do('CREATE EXTENSION leader_election');
	draw_some($history, $there, "$case, before");
	dump_database('moved_0', "$dump.moved");
	restore_dump("$dump.moved", 'moved_1');
	draw_some($history, connect_to($node, 'moved_1'), $case);
	dump_database('moved_1', $later);
	restore_dump($later, 'moved_2');
	draw_some($history, connect_to($node, 'moved_2'), "$case, twice");
	$node->restart;
	restore_dump("$dump.moved", 'moved_3');
	draw_some($history, connect_to($node, 'moved_3'), "$case, twice, then back to the first dump");
	draw_some($history, recreate($node, 'moved_3'),
		"$case, then the extension dropped, a restart, and created");
}

# The server has been promoted since the dump was made.
{
	my $case = 'promoted since the dump';
	my $history = 'since';

	$dbh = connect_to($node);
	$dbh->do("CREATE DATABASE since_$_") for 0 .. 1;
	my $there = connect_to($node, 'since_0');
	$there->do('CREATE EXTENSION leader_election');
	draw_some($history, $there, "$case, before");
	dump_database('since_0', "$dump.since");
	$there->disconnect;
	$dbh->disconnect;

	for my $times (1 .. 3)
	{
		begin_timeline($node)->disconnect;
		$there = connect_to($node, 'since_0');
		draw_some($history, $there, "$case, $times times");
		$there->disconnect;
	}
	restore_dump("$dump.since", 'since_1');
	draw_some($history, connect_to($node, 'since_1'), "$case, restored into another database");
	restore_dump("$dump.since", 'since_0', '--clean');
	$node->restart;
	draw_some($history, connect_to($node, 'since_0'), "$case, restored over the database");
}

# A database made from another as its template has the counter and the terms.
{
	my $case = 'a copy of a database';
	my $history = 'template';

	$dbh = connect_to($node);
	$dbh->do('CREATE DATABASE original');
	my $there = connect_to($node, 'original');
	$there->do('CREATE EXTENSION leader_election');
	my $epoch = acquire($there, 'held', 'leader', '1 hour')->{epoch};
	draw_some($history, $there, "$case, before");
	$there->disconnect;
	$dbh->do('CREATE DATABASE copied TEMPLATE original');
	$there = connect_to($node, 'original');
	draw_some($history, $there, "$case, the original");

	my $copy = connect_to($node, 'copied');
	ok(is_leader(renew($copy, 'held', $epoch)), "P5: $case: a held lease is held");
	is(acquire($copy, 'held', 'rival', '1 hour')->{leader}, 'leader', "P5: $case: by its holder");
	draw_some($history, $copy, $case);

	# They have nothing to do with each other from then on.
	value($copy, q{SELECT leader_release('held', ?)}, $epoch);
	ok(is_leader(acquire($copy, 'held', 'rival', '1 hour')), "$case: it changes hands there");
	ok(is_leader(renew($there, 'held', $epoch)), "$case: and not here");
	ok(value($there, q{SELECT leader_check('held', ?)}, $epoch), "$case: leader_check is true here");
	ok(!value($copy, q{SELECT leader_check('held', ?)}, $epoch), "$case: and false there");
}

# A dump from a server with more timelines, which its epochs are ahead of the
# clock by, on a server that has none of them: they go on from there, and go on
# when an older state of that server is put back.
{
	my $case = 'from a server with more timelines';
	my $history = 'more';

	$dbh = connect_to($node);
	$dbh->do('CREATE DATABASE more');
	my $there = connect_to($node, 'more');
	$there->do('CREATE EXTENSION leader_election');
	draw_some($history, $there, "$case, before");
	dump_database('more', "$dump.more");
	draw_some($history, $there, "$case, after the dump");

	my $other = new_node('other', streaming => 1);
	connect_to($other)->do('CREATE DATABASE more');
	$other->command_ok([ qw(pg_restore --exit-on-error -d more), "$dump.more" ], "$case: restored");
	draw_some($history, connect_to($other, 'more'), $case);
	$other->stop;
	$other->backup_fs_cold('cold');
	$other->start;
	draw_some($history, connect_to($other, 'more'), "$case, after a snapshot");
	$other->stop;

	my $copy = restored($other, 'other_cold', 'cold');
	draw_some($history, connect_to($copy, 'more'), "$case, restored from the snapshot");
	$dbh = begin_timeline($copy);
	draw_some($history, connect_to($copy, 'more'), "$case, and promoted");
	check_tables($copy, $case, 'more');
	$copy->stop;
}

done_testing();
