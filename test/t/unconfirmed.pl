# Guards P7: with synchronous standbys a term is replicated before its holder is
# told, whatever synchronous_commit says and however the wait for a standby
# ends: a term whose wait was cut short is unconfirmed, and leads nobody, until
# the standbys have it.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use LeaderElection;
use Test::More;

my $primary = new_node('primary', streaming => 1);
my $dbh = connect_to($primary);

$primary->backup('backup');

sub set_standbys
{
	my ($names) = @_;
	$primary->adjust_conf('postgresql.conf', 'synchronous_standby_names',
		"'$names'");
	$primary->reload;
	poll_until(
		sub { value($dbh, 'SHOW synchronous_standby_names') eq $names },
		'the new configuration');
	return;
}

# No grant without a standby, if so configured.
my $required = "SELECT leader_acquire('required', 'leader', '1 hour')";
my $kept = acquire($dbh, 'kept', 'leader', '1 hour')->{epoch};
my $given_up = acquire($dbh, 'given up', 'leader', '1 hour')->{epoch};
my $ended = acquire($dbh, 'ended', 'leader', '1 hour')->{epoch};
value($dbh, 'SELECT leader_release(?, ?)', 'ended', $ended);

$primary->append_conf('postgresql.conf', <<EOC);
leader_election.require_sync_standby = on
synchronous_standby_names = ''
EOC
$primary->reload;
poll_until(
	sub { value($dbh, 'SHOW leader_election.require_sync_standby') eq 'on' },
	'the new configuration');
is(sqlstate($dbh, $required),
	'55000', 'P7: require_sync_standby: no grant without a synchronous standby');
is(sqlstate($dbh, q{SELECT leader_acquire_session('required')}),
	'55000', 'P7: require_sync_standby: nor one for a session');
is(sqlstate($dbh, q{SELECT leader_acquire('ended', 'leader')}),
	'55000', 'P7: require_sync_standby: nor one of an election that is known');
ok(is_leader(renew($dbh, 'kept', $kept)), 'but a renewal');
ok(is_leader(acquire($dbh, 'kept', 'leader')), 'also by acquiring');
ok(!is_leader(acquire($dbh, 'kept', 'rival')), 'and who loses a bid is told so');
ok(value($dbh, 'SELECT leader_release(?, ?)', 'given up', $given_up), 'and a release');
is(sqlstate($dbh, 'SET leader_election.require_sync_standby = off'),
	'55P02', 'require_sync_standby is not for a session to set');
is( value($dbh, "SELECT count(*) FROM leader_status WHERE election = 'required'"),
	0, 'a refused grant leaves nothing behind');
$primary->adjust_conf('postgresql.conf',
	'leader_election.require_sync_standby', 'off');

# A term from before a restart without standbys: renewed then, it is as good as
# one granted then, whatever standbys are waited for later.
$primary->reload;
poll_until(
	sub { value($dbh, 'SHOW leader_election.require_sync_standby') eq 'off' },
	'the new configuration');
my $reclaimed = acquire($dbh, 'from before', 'leader', '1 hour')->{epoch};
$primary->restart;
$dbh = connect_to($primary);
ok(is_leader(renew($dbh, 'from before', $reclaimed)), 'a term renewed after a restart');
ok(is_leader(renew($dbh, 'kept', $kept)), 'another');
set_standbys('ghost');
await_sync_commits($primary);
ok(is_leader(renew($dbh, 'from before', $reclaimed)),
	'it goes on when standbys are waited for');
ok(value($dbh, 'SELECT leader_check(?, ?)', 'from before', $reclaimed),
	'leader_check is true');
is( value($dbh, q{SELECT state FROM leader_status WHERE election = 'from before'}),
	'held', 'held');

# A wait for a standby that is cut short.  Whoever grants the term, the client
# must not see a success, and nobody may be leader by it.
set_standbys('ghost');
await_sync_commits($primary);

my %cut = (
	'cancelled' => { cut => 'pg_cancel_backend' },
	'terminated' => { cut => 'pg_terminate_backend' },
	'cancelled, local' =>
	  { cut => 'pg_cancel_backend', before => ['SET synchronous_commit = local'] },
	'cancelled, off' =>
	  { cut => 'pg_cancel_backend', before => ['SET synchronous_commit = off'] },
	'cancelled in a block' => { cut => 'pg_cancel_backend', block => 1 });
my %epoch;

foreach my $case (sort keys %cut)
{
	my $client = connect_to($primary);
	my $grant =
	  "SELECT is_leader, epoch FROM leader_acquire('$case', 'leader', '1 hour')";

	$client->do($_) for @{ $cut{$case}->{before} // [] };
	if ($cut{$case}->{block})
	{
		$client->do('BEGIN');
		value($client, $grant);
		$client->do('SET LOCAL synchronous_commit = off');
		$grant = 'COMMIT';
	}
	start_query($client, $grant);
	wait_for_state($dbh, backend_pid($client), qr/SyncRep/);
	ok(!query_done($client), "P7: $case: the grant waits for the standby");
	value($dbh, "SELECT $cut{$case}->{cut}(?)", backend_pid($client));

	my ($state, $rows) = finish_query($client);
	isnt($state, '00000', "P7: $case: the client sees no success");
	is_deeply($rows, [], "P7: $case: nor an epoch");
	isnt(sqlstate($client, 'SELECT 1'), '00000', "P7: $case: its connection is lost");
}

# What such a term is, before and after a crash
sub check_unconfirmed
{
	my ($when) = @_;

	foreach my $case (sort keys %cut)
	{
		my $seen = row($dbh, 'SELECT * FROM leader_status WHERE election = ?', $case);

		$epoch{$case} //= $seen->{epoch};
		is($seen->{state}, 'unconfirmed', "P7: $case: unconfirmed $when");
		is($seen->{epoch}, $epoch{$case}, "$case: its epoch $when");
		ok(!is_leader(renew($dbh, $case, $epoch{$case})),
			"P7: $case: cannot be renewed $when");
		$dbh->do('SET synchronous_commit = off');
		ok(!is_leader(renew($dbh, $case, $epoch{$case})),
			"P7: $case: nor by a session that does not wait for standbys, $when");
		is( value($dbh, 'SELECT state FROM leader_status WHERE election = ?', $case),
			'unconfirmed', "P7: $case: it sees the same $when");
		$dbh->do('RESET synchronous_commit');
		ok(!value($dbh, 'SELECT leader_check(?, ?)', $case, $epoch{$case}),
			"P7: $case: leader_check is false $when");

		my $again = acquire($dbh, $case, 'leader', '1 hour');
		ok(!is_leader($again) && !defined $again->{epoch},
			"P7: $case: its holder does not lead by acquiring again $when");
		ok(!is_leader(acquire($dbh, $case, 'other', '1 hour')),
			"P7: $case: nor does anybody else $when");
	}
	is( value($dbh, "SELECT count(*) FROM leader_renew_all('leader') r WHERE r.election LIKE '%ed%'"),
		0, "P7: leader_renew_all does not renew them $when");
	return;
}

check_unconfirmed('before a crash');
ok(is_leader(renew($dbh, 'kept', $kept)),
	'a term from before goes on');

# A crash does not turn a term that no standby has into a confirmed one.
$primary->stop('immediate');
$primary->start;
$dbh = connect_to($primary);
check_unconfirmed('after a crash');

# Now the standby comes and catches up.
my $standby = new_standby($primary, 'ghost', 'backup');
$standby->start;
foreach my $case (sort keys %cut)
{
	my $term = poll_until(
		sub {
			my $renewed = renew($dbh, $case, $epoch{$case});
			is_leader($renewed) ? $renewed : undef;
		},
		"the confirmation of $case");
	is($term->{epoch}, $epoch{$case},
		"P7: $case: renewed with its epoch once the standby has it");
	ok(value($dbh, 'SELECT leader_check(?, ?)', $case, $epoch{$case}),
		"$case: leader_check is true");
	is(acquire($dbh, $case, 'leader', '1 hour')->{epoch},
		$epoch{$case}, "$case: acquired again with the same epoch");
	is( value($dbh, 'SELECT state FROM leader_status WHERE election = ?', $case),
		'held', "$case: held");
}
ok(is_leader(acquire($dbh, 'with a standby', 'leader', '1 hour')),
	'a grant with a standby');

# Everything that was told to a client is on the standby.
$primary->stop('immediate');
$standby->promote;
$dbh = connect_to($standby);
foreach my $case ('kept', 'with a standby', sort keys %epoch)
{
	is( value($dbh, 'SELECT leader FROM leader_status WHERE election = ?', $case),
		'leader', "P7: $case: the standby has the term");
}
is( value($dbh, 'SELECT epoch FROM leader_status WHERE election = ?', $_),
	$epoch{$_}, "P7: $_: with its epoch")
  for sort keys %epoch;
check_tables($standby, 'after the failover');

done_testing();
