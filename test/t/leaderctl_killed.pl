# Guards what leaderctl does when something ends at a blow: itself, the guard
# beside it, its connection, its term, or the server.  Either the command goes on
# under the same epoch, undisturbed, or nothing of it is alive when somebody else
# leads.
#
# Leases last for minutes or hours here, so that nothing runs out: what happens,
# happens because it was told or seen.  See Heartbeat.pm for how it is judged.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Heartbeat;
use Leaderctl;
use LeaderElection;
use Test::More;

my @tree = qw(stubborn tree);
my @hour = ('--ttl', '1h');
my $node = new_node('main');
my $dbh = connect_to($node);
my $relay = start_relay($node);

sub beating
{
	my ($name, $words, @options) = @_;
	my $case = start_beating($node, $name, $words, \@options,
		relay => $name eq 'deaf' ? $relay : undef);
	poll_until(sub { starts($case) }, "the command of $name");
	return $case;
}

sub lease
{
	my ($case) = @_;
	return row($dbh,
		'SELECT state, leader, epoch, extract(epoch FROM expires_in)::float8 AS expires_in
		   FROM leader_status WHERE election = ?', $case->{election});
}

sub renewals
{
	my ($case) = @_;
	return value($dbh, 'SELECT renewals FROM leader_stats WHERE election = ?', $case->{election}) // 0;
}

sub is_undisturbed
{
	my ($case, $epoch, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is_deeply([ map { "$_->{what} $_->{epoch}" } events($case) ], ["start $epoch"],
		"$name: the command is not disturbed");
}

# Ends a term, and lets the contender be faster than leaderctl, which would stand
# again.
sub take_from
{
	my ($case, $sql) = @_;
	my $main = own($case)->{main};

	freeze($main);
	value($dbh, $sql, $case->{election});
	contend($dbh, [$case]);
	thaw($main);
	return;
}

#
# A backend that is frozen does not answer: this takes a while, so it begins here,
# and the end comes later.
#

my $deaf = beating('deaf', \@tree, '--ttl', '2min');
my ($deaf_start) = starts($deaf);
my @deaf_backend = @{ column($dbh,
		q{SELECT pid FROM pg_stat_activity WHERE application_name = 'leaderctl'}) };

is(scalar @deaf_backend, 1, 'deaf: leaderctl uses one connection');

# It asks when it goes on, as it was notified of something.
freeze(own($deaf)->{main});
$dbh->do(q{NOTIFY leader_election, '{"election": "deaf", "event": "end"}'});
poll_until(sub { grep { $_->{what} eq 'end' } relayed($relay) }, 'a notification');
freeze(@deaf_backend);
my $deaf_renewals = renewals($deaf);
thaw(own($deaf)->{main});

#
# leaderctl itself is killed.
#

# The main process: whoever waits need not wait for the lease's end (R01, R08).
{
	my $case = beating('main', [ @tree, 'runaway' ], @hour, '--name', 'same');
	my $next = start_beating($node, 'main', \@tree, [ @hour, '--name', 'same' ]);
	my ($old) = starts($case);

	await_said($next->{run}, qr/candidate; the leader is/);
	kill 'KILL', own($case)->{main};
	await_end($case->{run});
	eventually(sub { starts($next) },
		'main: another leaderctl leads, long before the lease would end', $next);
	await_gone($case, 'main: nothing of the old command is alive, whatever had left its group');

	my ($new) = starts($next);
	cmp_ok($new->{epoch}, '>', $old->{epoch}, 'main: with a new epoch');
	cmp_ok(last_beat($case, $old->{epoch}), '<', $new->{time},
		'main: P4: the old command was dead before the new one began');
	isnt($new->{holder}, $old->{holder}, 'E11: two processes of one name are two holders');
	poll_until(sub { !marked($case->{run}) }, 'the end of the guard');
	end_beating($next, 'main');
}

# The guard: the main process is there to do its work.
{
	my $case = beating('guard', \@tree, @hour);

	kill 'KILL', own($case)->{guard};
	contend($dbh, [$case]);
	dead_before_takeover($case, 'guard');
	is(await_end($case->{run}), 125, 'guard: leaderctl has failed');
	is_deeply([ marked($case->{run}) ], [], 'guard: nothing is left');
}

# Both at once: the command itself cannot live without them.
{
	my $case = beating('both', ['stubborn'], @hour);
	my ($start) = starts($case);
	my $own = own($case);

	freeze(@{$own}{qw(main guard)});
	kill 'KILL', @{$own}{qw(main guard)};
	await_end($case->{run});
	await_gone($case, 'both: the command dies with them');
	is(lease($case)->{epoch}, $start->{epoch}, 'both: the lease is left to its end');
}

# Ended as it should be (R02): the lease is not given back while a process of the
# group is alive, which is longer than the command itself.
{
	my $case = beating('told', [qw(polite tree)], @hour);

	kill 'TERM', $case->{run}->{pid};
	contend($dbh, [$case]);
	dead_before_takeover($case, 'told');
	is(await_end($case->{run}), 0, "told: the exit code is the command's");
	is_deeply([ marked($case->{run}) ], [], 'told: nothing is left');
}

#
# The connection
#

# With a lease the connection does not matter.
{
	my $case = beating('lease', \@tree, @hour);
	my ($start) = starts($case);
	my $before = renewals($case);

	value($dbh, q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE application_name = 'leaderctl' AND pid <> ?}, $deaf_backend[0]);
	eventually(sub { renewals($case) > $before },
		'lease: P5: renewed over another connection', $case);
	is(lease($case)->{epoch}, $start->{epoch}, 'lease: under the same epoch');
	is_undisturbed($case, $start->{epoch}, 'lease');
	end_beating($case, 'lease');
}

# A session's term ends with it (B01).
{
	my $case = beating('session', ['polite'], @hour, '--session');
	my ($start) = starts($case);

	take_from($case, q{SELECT pg_terminate_backend(pid) FROM leader_status WHERE election = ?});
	await_gone($case, 'session: the command is ended');
	is_deeply([ map { $_->{what} } events($case) ], [qw(start term done)],
		'session: and had time to end by itself');
	eventually(sub { said($case->{run}) =~ /lost with the connection/ },
		'session: leaderctl says why', $case);
	give_way($dbh, $case);
	leads_again($case, 'session');
	end_beating($case, 'session');
}

#
# Deposed
#

foreach my $on_loss (qw(restart exit))
{
	my $name = "depose, $on_loss";
	my $case = beating($name, ['polite'], @hour, '--on-loss', $on_loss);

	take_from($case, 'SELECT leader_depose(?)');
	if ($on_loss eq 'exit')
	{
		is(await_end($case->{run}), 123,
			"$name: leaderctl exits with 123, long before the lease's end");
		is_deeply([ marked($case->{run}) ], [], "$name: nothing is left");
	}
	else
	{
		await_gone($case, "$name: the command is ended long before the lease's end");
		give_way($dbh, $case);
		leads_again($case, $name);
		end_beating($case, $name);
	}
	is_deeply([ map { $_->{what} } events($case) ]->[1], 'term', "$name: the command was told to end");
}

# Who does not obey is killed soon, as the lease has ended.
{
	my $case = beating('depose, stubborn', \@tree, @hour, '--kill-after', '1s', '--on-loss', 'exit');

	value($dbh, 'SELECT leader_depose(?)', $case->{election});
	is(await_end($case->{run}), 123, 'depose, stubborn: leaderctl exits with 123');
	is_deeply([ marked($case->{run}) ], [], 'depose, stubborn: nothing is left');
	told_before_the_end($case, 'depose, stubborn');
}

# The backend that does not answer (B15)
eventually(sub { renewals($deaf) > $deaf_renewals },
	'deaf: renewed over another connection, while the first one does not answer', $deaf);
is(lease($deaf)->{epoch}, $deaf_start->{epoch}, 'deaf: under the same epoch');
is_undisturbed($deaf, $deaf_start->{epoch}, 'deaf');
thaw(@deaf_backend);
end_beating($deaf, 'deaf');

#
# The server is restarted.
#

{
	my $case = beating('restart', \@tree, @hour);
	my ($start) = starts($case);

	foreach my $mode (qw(fast immediate))
	{
		$node->stop($mode);
		$node->start;
		$dbh = connect_to($node);
		eventually(sub { renewals($case) > 0 }, "restart, $mode: P5: the lease is renewed", $case);
		is(lease($case)->{epoch}, $start->{epoch}, "restart, $mode: under the same epoch");
		is_undisturbed($case, $start->{epoch}, "restart, $mode");
	}
	end_beating($case, 'restart');
}

done_testing();
