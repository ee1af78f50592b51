# A server that has lost the newest terms takes over: a standby that lagged, the
# next one in a cascade, the old primary after pg_rewind, and what was restored
# from an archive to a point before them.
#
# Guards P1: its next epoch is higher than any that was told anywhere, be it
# lost; the tokens of lost terms are refused there, now and after the next
# grants, and their terms cannot be renewed.  P2 and P5 for the terms that it
# had received: the older token stays stale, and the holder goes on.  (P2 and P4
# cannot hold for terms that it had not.)
#
# The counter is far ahead of the wall clock, which would hide everything else;
# and who loses terms draws as if its clock were ahead of the next one's.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use File::Copy qw(copy);
use LeaderElection qw(:DEFAULT draw move_ahead promote);
use PostgreSQL::Test::Utils;
use Test::More;

my $quick = "wal_retrieve_retry_interval = '100 ms'";

# The highest epoch that was told, by whichever server, and each term's.
my $highest;
my @granted;

sub grant
{
	my ($dbh, $election, $holder) = @_;
	my $term = acquire($dbh, $election, $holder, '1 hour');

	die "no term of $election" unless is_leader($term);
	$highest = $term->{epoch} if $term->{epoch} > $highest;
	push @granted, [ $election, $term->{epoch} ];
	return $term->{epoch};
}

sub release
{
	my ($dbh, $election, $epoch) = @_;
	return value($dbh, 'SELECT leader_release(?, ?)', $election, $epoch);
}

# The tables that terms write to, protected in both ways.
sub new_primary
{
	my ($name, $conf) = @_;
	my $node = new_node($name, streaming => 1, conf => $conf);
	my $dbh = connect_to($node);

	move_ahead($dbh);
	$highest = draw($dbh);
	@granted = ();
	$dbh->do('CREATE TABLE by_setting (entry text)');
	value($dbh, "SELECT leader_protect('by_setting', 'moved')");
	$dbh->do('CREATE TABLE by_column (entry text, epoch bigint)');
	value($dbh, "SELECT leader_protect('by_column', 'moved', 'epoch')");
	return ($node, $dbh);
}

# What the next primary will have received.
sub prepare
{
	my ($dbh) = @_;
	my %known;

	foreach my $election (qw(kept moved vacant))
	{
		release($dbh, $election, grant($dbh, $election, 'long ago'));
		$known{$election} = grant($dbh, $election, 'received');
	}
	release($dbh, 'vacant', $known{vacant});
	return \%known;
}

# Half of what a timeline makes up for.
sub run_ahead
{
	my ($dbh) = @_;
	value($dbh, q{SELECT setval('leader_election_epoch', last_value + (1::bigint << 31))
		FROM leader_election_epoch});
	return;
}

# What it will not: terms of an election that it knows as held, of one that it
# knows as free, of one that it does not know, and epochs of terms that ended.
my $unknown = 0;

sub lose
{
	my ($dbh, $known) = @_;
	my $new = 'unknown ' . ++$unknown;

	run_ahead($dbh);
	release($dbh, 'moved', $known->{moved});
	my %lost = map { $_ => grant($dbh, $_, 'lost') } 'moved', 'vacant', $new;
	$dbh->do("SET leader_election.fence = 'moved=$lost{moved}'");
	$dbh->do("INSERT INTO by_setting VALUES ('lost')");
	$dbh->do('INSERT INTO by_column VALUES (?, ?)', undef, 'lost', $lost{moved});
	foreach my $round (1 .. 5)
	{
		release($dbh, 'drawn and lost', grant($dbh, 'drawn and lost', 'lost'));
	}
	return \%lost;
}

# Lost tokens do nothing.  The state is LE003 where the server does not know that
# an epoch that high was told, LE001 from the next grant on.
sub check_lost
{
	my ($dbh, $lost, $state, $case) = @_;

	foreach my $election (sort keys %$lost)
	{
		my $epoch = $lost->{$election};

		ok(!is_leader(renew($dbh, $election, $epoch)),
			"$case: $election: a lost term is not renewed");
		ok(!value($dbh, 'SELECT leader_check(?, ?)', $election, $epoch),
			"$case: $election: leader_check is false");
		ok(!release($dbh, $election, $epoch), "$case: $election: nor is it released");
		ok( !value($dbh, q{SELECT leader_set_metadata(?, ?, '{"at": "lost"}')},
				$election, $epoch),
			"$case: $election: nor does its holder publish anything");
		is(sqlstate($dbh, 'SELECT leader_fence(?, ?)', $election, $epoch),
			$state, "$case: $election: its token is refused");
	}
	is_deeply($dbh->selectall_arrayref("SELECT * FROM leader_renew_all('lost')"),
		[], "$case: leader_renew_all finds no lost term");

	$dbh->do("SET leader_election.fence = 'moved=$lost->{moved}'");
	is(sqlstate($dbh, "INSERT INTO by_setting VALUES ('late')"),
		$state, "$case: a write with a lost token is refused");
	is(sqlstate($dbh, 'INSERT INTO by_column VALUES (?, ?)', 'late', $lost->{moved}),
		$state, "$case: and one with the token in a column");
	$dbh->do('RESET leader_election.fence');
	return;
}

# Many draw the first epochs of a new timeline at once: none draws what another
# has, nor below the old ones.
sub check_crowd
{
	my ($node, $case) = @_;
	my @crowd = map { connect_to($node) } 1 .. 8;
	my $before = $highest;

	foreach my $n (0 .. $#crowd)
	{
		start_query($crowd[$n],
			'SELECT epoch FROM generate_series(1, 5) g, leader_acquire(?::text || g, ?, ?::interval)',
			"$case, crowd $n ", 'crowd', '1 hour');
	}
	my @epochs;
	foreach my $session (@crowd)
	{
		my ($state, $rows) = finish_query($session);

		push @epochs, map { $_->{epoch} } @$rows;
		$session->disconnect;
	}
	my %seen;
	is(scalar(grep { $_ > $before && !$seen{$_}++ } @epochs),
		5 * @crowd, "$case: P1: many draw at once, each its own and higher");
	foreach my $epoch (@epochs) { $highest = $epoch if $epoch > $highest; }
	return;
}

# A server that is new in this role.
sub check_new
{
	my ($node, $dbh, $known, $lost, $case) = @_;

	check_lost($dbh, $lost, 'LE003', "$case, at first");
	check_crowd($node, $case);

	foreach my $election (qw(kept moved))
	{
		my $renewed = renew($dbh, $election, $known->{$election});

		ok(is_leader($renewed), "$case: P5: $election: a received term is renewed");
		is($renewed->{leader}, 'received', "$case: P5: $election: by its holder");
		is($renewed->{epoch}, $known->{$election}, "$case: P5: $election: with its epoch");
		ok(!is_leader(acquire($dbh, $election, 'rival', '1 hour')),
			"$case: P5: $election: nobody else is let in");
	}
	my $bid = acquire($dbh, 'moved', 'lost', '1 hour');
	ok(!is_leader($bid) && !defined $bid->{epoch},
		"$case: P5: not even the holder of the lost term");
	my ($stale) = grep { $_->[0] eq 'moved' && $_->[1] < $known->{moved} } reverse @granted;
	is(sqlstate($dbh, 'SELECT leader_fence(?, ?)', @$stale),
		'LE001', "$case: P2: the token of a received term that has ended stays stale");
	$dbh->do("SET leader_election.fence = 'moved=$known->{moved}'");
	is(sqlstate($dbh, "INSERT INTO by_setting VALUES ('received')"),
		'00000', "$case: the current token is not");
	$dbh->do('RESET leader_election.fence');

	release($dbh, 'moved', $known->{moved});
	foreach my $election (sort keys %$lost)
	{
		my $before = $highest;

		cmp_ok(grant($dbh, $election, 'next'),
			'>', $before, "$case: P1: $election: the next epoch is higher than any told");
	}
	check_lost($dbh, $lost, 'LE001', "$case, after the next grants");
	is(value($dbh, "SELECT count(*) FROM by_setting WHERE entry IN ('lost', 'late')"),
		0, "$case: nothing of a lost term is there");
	is(value($dbh, "SELECT count(*) FROM by_column WHERE entry IN ('lost', 'late')"),
		0, "$case: nor in the table with a column");
	cmp_ok($highest, '<', 2**53, "$case: below 2^53");
	check_tables($node, $case);

	# Of all terms ever granted, whoever lost them, those that lead here pass.
	my %leading = map { @$_ } @{
		$dbh->selectall_arrayref('SELECT election, epoch FROM leader_status WHERE leader IS NOT NULL') };
	is_deeply(
		[
			grep {
				my ($election, $epoch) = @$_;

				($leading{$election} // 0) != $epoch
				  && (is_leader(renew($dbh, $election, $epoch))
					|| sqlstate($dbh, 'SELECT leader_fence(?, ?)', $election, $epoch) !~ /^LE00[13]$/);
			} @granted
		],
		[], "$case: no token of earlier rounds is accepted");

	# For the next round everything is free again.
	$dbh->do('SELECT leader_release(election, epoch) FROM leader_status WHERE leader IS NOT NULL');
	return;
}

# The primary is lost with what the standby has not got.
sub fail_over
{
	my ($old, $old_dbh, $new, $case) = @_;
	my $known = prepare($old_dbh);

	$old->wait_for_catchup($new, 'replay', $old->lsn('flush'));
	$new->stop;
	my $lost = lose($old_dbh, $known);
	$old->stop('immediate');

	my $dbh = promote($new);
	check_new($new, $dbh, $known, $lost, $case);
	return $dbh;
}

#
# Promotions, one after another
#

my ($one, $dbh) = new_primary('one', "wal_log_hints = on\nwal_keep_size = '256 MB'\n$quick");
$one->backup('backup');
my $two = new_standby($one, 'two', 'backup');
my $three = PostgreSQL::Test::Cluster->new('three');
$three->init_from_backup($one, 'backup');
$three->enable_streaming($two);
$_->start for $two, $three;

$dbh = fail_over($one, $dbh, $two, 'promotion of a lagging standby');

# The cascaded standby has followed.
$dbh = fail_over($two, $dbh, $three, 'promotion of the next one in the cascade');

# The old primary has terms and epochs that no other server knows.
{
	my $conf = $one->data_dir . '/postgresql.conf';
	my $kept = $one->basedir . '/postgresql.conf';

	# The source's position on its timeline is read from its control file.
	$dbh->do('CHECKPOINT');
	copy($conf, $kept) or die;
	command_ok(
		[
			'pg_rewind', '--no-sync', '--target-pgdata', $one->data_dir,
			'--source-server', $three->connstr('postgres')
		],
		'the old primary is rewound');
	copy($kept, $conf) or die;
	$one->enable_streaming($three);
	$one->start;
	$dbh = fail_over($three, $dbh, $one, 'promotion of the old primary after pg_rewind');
}
$one->stop;

#
# Restored to a point before the newest grants, twice from the same backup: the
# second does not know what was granted by the first.
#

my $archive = PostgreSQL::Test::Utils::tempdir();
my ($archived, $archived_dbh) = new_primary('archived', <<EOC);
archive_mode = on
archive_command = 'cp "%p" "$archive/copying" && mv "$archive/copying" "$archive/%f"'
EOC
$archived->backup('backup');
my $known = prepare($archived_dbh);
value($archived_dbh, "SELECT pg_create_restore_point('before')");
my $lost = lose($archived_dbh, $known);
my $last = value($archived_dbh, 'SELECT pg_walfile_name(pg_switch_wal())');
poll_until(sub { -e "$archive/$last" }, 'the archive');
$archived->stop('immediate');

foreach my $target (
	[ 'restored', '00000002.history' ],
	[ 'restored_again', '00000003.history' ])
{
	my ($name, $history) = @$target;
	my $case = "point-in-time recovery, $name";
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init_from_backup($archived, 'backup');
	$node->append_conf('postgresql.conf', <<EOC);
restore_command = 'cp "$archive/%f" "%p"'
recovery_target_name = 'before'
recovery_target_action = promote
EOC
	$node->set_recovery_mode;
	$node->start;
	$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()')
	  or die 'no end of recovery';
	my $dbh = connect_to($node);
	check_new($node, $dbh, $known, $lost, $case);

	# The next one knows of this one's timeline, but of none of its terms.
	run_ahead($dbh);
	grant($dbh, 'moved', 'lost');
	poll_until(sub { -e "$archive/$history" }, 'the new timeline in the archive');
	$node->stop('immediate');
}

done_testing();
