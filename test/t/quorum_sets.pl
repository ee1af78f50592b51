# Guards the quorum rule (see quorum.pl) for each kind of
# synchronous_standby_names and for standbys that come and go, in all the ways
# in which one can go: its process frozen, its connection cut, its server
# stopped.  As long as enough of them follow, leases go on and terms are
# granted; otherwise no lease gets longer and no grant is acknowledged (P7),
# while renewals still return.
#
# And that a client that calls again whenever it was told to keeps its lease.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use Test::More;
use Time::HiRes qw(usleep);

my $hour = 3600;
my $precision = 0.001;    # times are told in whole microseconds

my $primary = new_node('primary', streaming => 1,
	conf => "synchronous_standby_names = ''");
$primary->safe_psql('postgres', 'CREATE EXTENSION pg_walinspect');
$primary->backup('backup');
my %standby = map { $_ => new_standby($primary, $_, 'backup') } qw(a b);
$_->start for values %standby;

my $dbh = connect_to($primary);
my $epoch = acquire($dbh, 'one', 'one', '1 hour')->{epoch};
my @one = (\&renew, $dbh, 'one', $epoch);
my %receiver;

sub await_standby
{
	my ($name) = @_;

	$receiver{$name} = wal_receiver($standby{$name});
	poll_until(
		sub {
			value($dbh, q{SELECT count(*) FROM pg_stat_replication
				WHERE application_name = ? AND state = 'streaming'}, $name) == 1;
		},
		"standby $name to be seen");
	return;
}

sub await_no_standby
{
	my ($name) = @_;

	poll_until(
		sub {
			value($dbh, 'SELECT count(*) FROM pg_stat_replication
				WHERE application_name = ?', $name) == 0;
		},
		"standby $name to be gone");
	return;
}

# Processes that serve standbys take notice of a new setting some time later,
# new ones start with it.
sub want_standbys
{
	my ($names) = @_;
	my $old = value($dbh, 'SHOW synchronous_standby_names');

	rewrite_conf($primary, synchronous_standby_names => "'$names'");
	poll_until(
		sub { value(connect_to($primary), 'SHOW synchronous_standby_names') eq $names },
		'the new configuration');
	if ($old eq '')
	{
		freeze(values %receiver);
		await_sync_commits($primary);
		thaw();
	}
	value($dbh, 'SELECT count(pg_terminate_backend(pid, 60000)) FROM pg_stat_replication');
	await_standby($_) for qw(a b);
	return;
}

sub goes_on
{
	my ($case) = @_;
	my $since = now();
	my $last = poll_until(
		sub {
			my $renewed = told(@one);
			!is_leader($renewed) || $renewed->{ends_after} >= $since + $hour
			  ? $renewed
			  : undef;
		},
		"$case: a lease to follow the standbys");

	ok(is_leader($last), "$case: the lease goes on");
	ok(is_leader(acquire($dbh, $case, 'granted', '1 hour')), "$case: terms are granted");
	return;
}

# Waits for what nobody acknowledges until "back" brings the standbys back.
sub stops
{
	my ($case, $gone, $back) = @_;
	my $bound = told(@one)->{answered} + $hour + $precision;
	my $client = connect_to($primary);
	my (@promised, $since);

	$gone->();

	# Whatever was under way when they went was asked before.
	start_query($client, q{SELECT is_leader FROM leader_acquire(?, 'granted', '1 hour')},
		$case);
	wait_for_state($dbh, backend_pid($client), qr/SyncRep/);
	$since = now();
	while (elapsed($since) < 0.7)
	{
		push @promised, told(@one);
		usleep(10_000);
	}
	is(scalar(grep { !is_leader($_) } @promised), 0,
		"$case: renewals return, and the lease is not over");
	is(scalar(grep { $_->{ends_after} > $bound } @promised), 0,
		"$case: P4: the lease does not become longer");
	ok(!query_done($client), "$case: P7: no grant is acknowledged");

	$back->();
	my ($state, $rows) = finish_query($client);
	ok($state eq '00000' && $rows->[0]->{is_leader},
		"$case: P7: it is when the standbys are back");
	return;
}

sub stops_frozen
{
	my ($case, @names) = @_;

	stops($case, sub { freeze(@receiver{@names}) }, sub { thaw() });
	return;
}

sub cut
{
	my ($name) = @_;

	rewrite_conf($standby{$name}, primary_conninfo => "'host=/nowhere port=1'");
	await_no_standby($name);
	return;
}

sub mend
{
	my ($name) = @_;

	rewrite_conf($standby{$name}, primary_conninfo => "'" . $primary->connstr . "'");
	await_standby($name);
	return;
}

await_standby($_) for qw(a b);

want_standbys('ANY 1 (a, b)');
goes_on('ANY 1');
freeze($receiver{a});
goes_on('ANY 1, a frozen');
thaw();
freeze($receiver{b});
goes_on('ANY 1, b frozen');
thaw();
stops_frozen('ANY 1, both frozen', qw(a b));
goes_on('ANY 1, both back');

want_standbys('FIRST 1 (a, b)');
freeze($receiver{b});
goes_on('FIRST 1, second frozen');
thaw();
stops_frozen('FIRST 1, first frozen', 'a');
cut('a');
goes_on('FIRST 1, first cut off');
stops('FIRST 1, both cut off', sub { cut('b') }, sub { mend('b') });
goes_on('FIRST 1, second back');
mend('a');
goes_on('FIRST 1, both back');

want_standbys('ANY 2 (a, b)');
goes_on('ANY 2');
stops_frozen('ANY 2, one frozen', 'a');
stops(
	'ANY 2, one stopped',
	sub { $standby{b}->stop },
	sub { $standby{b}->start; await_standby('b') });
goes_on('ANY 2, it is back');

want_standbys('FIRST 2 (a, b)');
goes_on('FIRST 2');
stops_frozen('FIRST 2, second frozen', 'b');
stops('FIRST 2, first cut off', sub { cut('a') }, sub { mend('a') });
goes_on('FIRST 2, it is back');

#
# Clients that do as they are told, with short leases, while one standby after
# the other comes and goes.
#
# On a slow machine a client may be late, and so may a standby.  Then the lease
# ends, as it was told, and the next term gets its chance.
#

want_standbys('ANY 1 (a, b)');
my %client = map { $_ => { ttl => $_, epoch => undef, next => 0, lasted => 0 } } (1, 3);
my @broken;

sub call
{
	my ($client) = @_;
	my $name = "short $client->{ttl}";
	my $before = $client->{last};
	my $answer = told(
		defined $client->{epoch}
		? (\&renew, $dbh, $name, $client->{epoch})
		: (\&acquire, $dbh, $name, 'client', "$client->{ttl} s"));

	push @broken, "$name: over before its time"
	  if !is_leader($answer) && defined $client->{epoch} &&
		$answer->{answered} < $before->{ends_after};
	push @broken, "$name: longer than a TTL"
	  if is_leader($answer) &&
		$answer->{ends_after} > $answer->{answered} + $client->{ttl} + $precision;
	if (is_leader($answer))
	{
		$client->{since} = $answer->{asked}
		  if !defined $client->{epoch} || $client->{epoch} != $answer->{epoch};
		$client->{epoch} = $answer->{epoch};
		$client->{last} = $answer;
		$client->{lasted} = $answer->{asked} - $client->{since};
	}
	else
	{
		note("$name: a new term");
		undef $client->{epoch};
	}
	$client->{next} = now() + $answer->{retry_after};
	return;
}

my $from = wal_position($dbh);
my $since = now();
my ($away, $change_at) = ('b', 0);
poll_until(
	sub {
		foreach my $client (values %client)
		{
			call($client) if now() >= $client->{next};
		}
		if (now() >= $change_at)
		{
			thaw();
			$away = $away eq 'a' ? 'b' : 'a';
			freeze($receiver{$away});
			$change_at = now() + 0.4;
		}
		!grep { $_->{lasted} < 2 * 3 } values %client;
	},
	'terms that last for many TTLs');
my $seconds = elapsed($since);
thaw();
my $records = wal_records($dbh, $from)->{noop};

is_deeply(\@broken, [], 'P4: what clients were told has held');
cmp_ok($_->{lasted}, '>', $_->{ttl},
	"a client that calls when it was told to keeps its lease of $_->{ttl} s")
  for values %client;
note("$records records in $seconds seconds");
cmp_ok($records, '<=', 1 + $seconds / (1 / 6),
	'six records for a TTL at most, if it is short');
# What was renewed all the time is still led when standbys return in time.
goes_on('standbys came and went');

done_testing();
