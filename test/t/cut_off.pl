# Guards P4 across a failover with quorum commit: a primary that was cut off
# from its standby keeps no leader alive for longer than a TTL after what the
# standby has last acknowledged, and the standby, promoted, lets nobody take
# over before a TTL from the first look.  Both servers run all the time, on one
# host, so that one clock compares what they tell.
#
# The clients of both try all the time, as fast as they can: whenever one was
# told that it leads, the other's time has run out, at whatever speed all this
# goes.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use List::Util qw(max);
use Test::More;
use Time::HiRes qw(usleep);

my $ttl = 2;
my $hour = 3600;
my $precision = 0.001;    # times are told in whole microseconds

# A primary and a standby that it waits for.
sub new_pair
{
	my ($name) = @_;
	my $primary = new_node("${name}_primary", streaming => 1,
		conf => "synchronous_standby_names = ''");
	my $dbh = connect_to($primary);

	$dbh->do('CREATE TABLE work (entry text)');
	$dbh->do("SELECT leader_protect('work', 'job')");
	$primary->backup('backup');
	my $standby = new_standby($primary, "${name}_standby", 'backup');
	$standby->start;
	my $receiver = wal_receiver($standby);
	rewrite_conf($primary,
		synchronous_standby_names => "'ANY 1 (${name}_standby)'");
	freeze($receiver);
	await_sync_commits($primary);
	thaw();
	$dbh->disconnect;
	return ($primary, $standby);
}

# A client of one server: it calls without a pause and never waits for a grant.
# What it was told is kept, with the times of asking.
sub new_client
{
	my ($node, $holder, $ttl) = @_;
	return {
		dbh => connect_to($node),
		observer => connect_to($node),
		holder => $holder,
		ttl => $ttl,
		led => []
	};
}

sub call
{
	my ($client) = @_;
	my $answer;

	if (defined $client->{asked})
	{
		# A grant that waits for a standby
		return unless query_done($client->{dbh});
		my ($state, $rows) = finish_query($client->{dbh});
		$answer = $rows->[0] // { is_leader => 0 };
		@$answer{qw(asked answered)} = ($client->{asked}, now());
		$answer->{ends_after} = $client->{asked} + ($answer->{expires_in} // 0);
		undef $client->{asked};
	}
	elsif (defined $client->{epoch})
	{
		$answer = told(\&renew, $client->{dbh}, 'job', $client->{epoch});
	}
	else
	{
		$client->{asked} = now();
		start_query($client->{dbh},
			q{SELECT is_leader, epoch, extract(epoch FROM expires_in)::float8 AS expires_in
				FROM leader_acquire('job', ?, ?::interval)},
			$client->{holder}, "$client->{ttl} s");
		return;
	}
	$client->{epoch} = $answer->{epoch};
	push @{ $client->{led} }, $answer if is_leader($answer);
	return;
}

# Until when was it told to lead?
sub promised
{
	my ($client) = @_;
	return max(0, map { $_->{ends_after} } @{ $client->{led} });
}

my @ways = (
	[
		'connection frozen',
		sub {
			my ($primary) = @_;
			freeze(
				value(connect_to($primary), 'SELECT pid FROM pg_stat_replication'));
		}
	],
	[
		'connection cut',
		sub {
			my ($primary, $standby) = @_;
			my $dbh = connect_to($primary);
			rewrite_conf($standby,
				primary_conninfo => "'host=/nowhere port=1'");
			poll_until(
				sub { !value($dbh, 'SELECT count(*) FROM pg_stat_replication') },
				'the standby to go');
		}
	]);

foreach my $way (@ways)
{
	my ($case, $cut) = @$way;
	(my $name = $case) =~ s/ /_/g;
	my ($primary, $standby) = new_pair($name);
	my $old = new_client($primary, 'old', $ttl);

	# Another lease, to be there still when all is over
	my $long = acquire($old->{observer}, 'long', 'old', '1 hour')->{epoch};
	my @long = (\&renew, $old->{observer}, 'long', $long);

	# It leads, and goes on for more than a TTL.
	poll_until(
		sub {
			call($old);
			@{ $old->{led} } && $old->{led}->[-1]->{epoch} == $old->{led}->[0]->{epoch} &&
			  $old->{led}->[-1]->{asked} > $old->{led}->[0]->{asked} + $ttl;
		},
		"$case: a leader");
	my $last_epoch = $old->{led}->[-1]->{epoch};

	$cut->($primary, $standby);
	$standby->promote;

	# What was written from here on went to no standby.
	my $bound = now();
	my $new = new_client($standby, 'new', $ttl);
	my $first_look = now();

	# The old one goes on trying for a while after the new one leads.
	poll_until(
		sub {
			call($old);
			call($new);
			@{ $new->{led} } > 20 && now() > $bound + $ttl + 1;
		},
		"$case: another leader");
	my $first = $new->{led}->[0];

	cmp_ok(promised($old), '<=', $bound + $ttl + $precision,
		"$case: P4: nobody was told to lead on the old primary for more than a TTL");
	cmp_ok(max(map { $_->{asked} } @{ $old->{led} }), '<=', $bound + $ttl,
		"$case: P4: nor was told so later");
	cmp_ok(promised($old), '<=', $first->{answered},
		"$case: P4: never two leaders");
	cmp_ok($first->{answered}, '>=', $first_look + $ttl,
		"$case: P5: no takeover before a TTL from the first look");
	cmp_ok($first->{epoch}, '>', $last_epoch, "$case: P1: the new epoch is higher");
	is(scalar(grep { $_->{epoch} != $first->{epoch} } @{ $new->{led} }),
		0, "$case: the new leader goes on");

	# On the old primary
	my $observer = $old->{observer};
	ok(!is_leader(renew($observer, 'job', $last_epoch)),
		"$case: P4: the old term cannot be renewed");
	ok(!value($observer, 'SELECT leader_check(?, ?)', 'job', $last_epoch),
		"$case: P4: leader_check is false");
	poll_until(sub { call($old); defined $old->{asked} && !query_done($old->{dbh}) },
		"$case: the old one to bid");
	wait_for_state($observer, backend_pid($old->{dbh}), qr/SyncRep/);
	my $renewed = told(@long);
	ok(is_leader($renewed), "$case: a longer lease goes on");
	cmp_ok($renewed->{ends_after}, '<=', $bound + $hour + $precision,
		"$case: P4: but not for longer than the standby has vouched for");

	# On the new one
	is( sqlstate($new->{observer}, 'SELECT leader_fence(?, ?)', 'job', $last_epoch),
		'LE001', "$case: P2: the old token is stale on the new primary");
	$new->{observer}->do("SET leader_election.fence = 'job=$last_epoch'");
	is(sqlstate($new->{observer}, q{INSERT INTO work VALUES ('stale')}),
		'LE001', "$case: P2: so is a write with it");
	ok(is_leader(renew($new->{observer}, 'long', $long)),
		"$case: P5: the longer lease is held there too");

	# The old primary comes back, still alone.
	if ($case eq 'connection cut')
	{
		my $restarted = "$case, restarted";

		$primary->stop('immediate');
		$primary->start;
		my $again = new_client($primary, 'old', $ttl);
		my $since = now();
		my $leads = 0;

		$again->{epoch} = $last_epoch;
		poll_until(
			sub {
				call($again);
				foreach my $term ([ 'job', $last_epoch ], [ 'long', $long ])
				{
					$leads++ if is_leader(renew($again->{observer}, @$term));
					$leads++
					  if value($again->{observer}, 'SELECT leader_check(?, ?)', @$term);
				}
				elapsed($since) > $ttl + 1;
			},
			'more than a TTL to pass');
		is($leads, 0, "$restarted: P5: no term from before is led");
		is_deeply($again->{led}, [], "$restarted: P7: nor is a new one granted");
		is_deeply(
			column($again->{observer},
				q{SELECT election FROM leader_renew_all('old')}),
			[], "$restarted: nor does leader_renew_all find any");
		wait_for_state($again->{observer}, backend_pid($again->{dbh}), qr/SyncRep/);
		ok(!query_done($again->{dbh}), "$restarted: who bids waits for a standby");
	}
	thaw();
	check_tables($standby, 'the promoted standby');
	$primary->stop('immediate');
	$standby->stop('immediate');
}

done_testing();
