# Guards what leaderctl is for: the command, with all of its process group, is
# told to end, and dead before the lease can end at the server, when nobody tells
# leaderctl that it does (B03, R06).  The leases, by their names:
#	cut		the network is cut without a word
#	polite		likewise, and the command obeys when it is told to end
#	session		likewise, with a session's term (B10, B13)
#	late		an answer was late; the lease counts from before the question
#	main		leaderctl's main process is stopped, and goes on later
#	guard		its guard is stopped, and the network is cut
#	all		all are stopped, the command too, and go on later (D14)
#	quorum		the standby that has to confirm renewals is not there
#	database	all processes of the server are stopped
#
# All but the last one run at once, against a contender that asks all the time;
# see Heartbeat.pm for how that is judged.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Heartbeat;
use Leaderctl;
use LeaderElection;
use Test::More;

my $ttl = 3;
my $long_ttl = 6;    # where time is needed between the deadlines
my @tree = qw(stubborn tree);
my @leave = ('--on-loss', 'exit');

my $node = new_node('main');
my $dbh = connect_to($node);
my %relay = map { $_ => start_relay($node) } qw(cut polite session main guard all);
$relay{late} = start_relay($node, hold => 1.5);

# One server more, whose troubles do not concern the other leases
my $other = new_node('other', streaming => 1, conf => "synchronous_standby_names = ''");
my $on_other = connect_to($other);

#
# All of them lead, and then something happens to each.
#

sub start_at
{
	my ($name, $ttl, $words, @options) = @_;
	return start_beating($node, $name, $words, [ '--ttl', $ttl, @options ],
		relay => $relay{$name});
}

my %case = (
	cut => start_at('cut', $ttl, \@tree, @leave),
	polite => start_at('polite', $long_ttl, ['polite'], @leave),
	session => start_at('session', $ttl, \@tree, '--session', @leave),
	late => start_at('late', $long_ttl, \@tree, @leave),
	main => start_at('main', $ttl, \@tree),
	guard => start_at('guard', $ttl, \@tree),
	all => start_at('all', $ttl, \@tree));
my $quorum = start_beating($other, 'quorum', \@tree, [ '--ttl', $ttl, @leave ]);

poll_until(sub { starts($_) }, "the command of $_->{election}") for values %case, $quorum;
my %own = map { $_ => own($case{$_}) } keys %case;
my $session_backend =
  value($dbh, q{SELECT pid FROM leader_status WHERE election = 'session'});

freeze(map { $_->{pid} } @relay{qw(cut polite session)});
freeze($own{main}->{main});
freeze($relay{guard}->{pid}, $own{guard}->{guard});
freeze($own{all}->{guard}, $own{all}->{main}, command_processes($case{all}));
my $frozen_at = now();
rewrite_conf($other, synchronous_standby_names => "'not_there'");

# Until when the server that lacks its standby has promised what it has.  When
# the promise is over, it has been kept.
my $promised;
my $promise_is_over = 0;
sub ask_for_promise
{
	return 1 if $promise_is_over;
	my $asked = told(\&row, $on_other,
		q{SELECT state, extract(epoch FROM expires_in)::float8 AS expires_in
			FROM leader_status WHERE election = 'quorum'});

	$promise_is_over = $asked->{state} ne 'held';
	$promised = $asked->{ends_before} if !$promise_is_over;
	return $promise_is_over;
}

contend($dbh, [ values %case ], \&ask_for_promise);

#
# What has become of them
#

dead_before_takeover($case{$_}, $_) for qw(cut polite session late main guard);

foreach my $name (qw(cut session late))
{
	told_before_the_end($case{$name}, $name);
	is(await_end($case{$name}->{run}), 123, "$name: then leaderctl has lost, and exits with 123");
	is_deeply([ marked($case{$name}->{run}) ], [], "$name: and leaves nothing behind");
}

ok((grep { $_->{what} eq 'renew' } relayed($relay{late})),
	'late: it was cut off when it renewed');

# The term of a session ends with the TTL, though its connection is there.
is(value($dbh, 'SELECT count(*) FROM pg_stat_activity WHERE pid = ?', $session_backend),
	1, 'session: the server has not noticed that its client is cut off');

is(await_end($case{polite}->{run}), 123, 'polite: leadership is lost');
is_deeply([ map { $_->{what} } events($case{polite}) ], [qw(start term done)],
	'polite: a command that obeys has time to end by itself');

told_before_the_end($case{main}, 'main');
await_gone($case{main}, 'main: the guard has ended the command while the main process is stopped');
isnt(await_end($case{guard}->{run}), 0,
	'guard: the main process ends the command while the guard is stopped, and fails');
is_deeply([ marked($case{guard}->{run}) ], [], 'guard: and leaves nothing behind');

my $epoch_at_quorum = (starts($quorum))[-1]->{epoch};
is(await_end($quorum->{run}), 123, 'quorum: leadership ends without the standby');
is_deeply([ marked($quorum->{run}) ], [], 'quorum: nothing is left');
cmp_ok(last_beat($quorum, $epoch_at_quorum), '<', $promised,
	'quorum: the command was dead before what the server had promised was over');
told_before_the_end($quorum, 'quorum');

#
# Whoever goes on looks at the clock before anything else: it does not renew what
# it has lost, kills a command that is stopped before that could go on, and
# stands again.
#

poll_until(sub { elapsed($frozen_at) > 3 * $ttl }, 'the time of three leases to pass');
foreach my $name (qw(main all))
{
	my $case = $case{$name};
	my $epoch = (starts($case))[-1]->{epoch};
	my $resumed_at = now();

	thaw(@{ own($case) }{qw(main guard)});
	await_gone($case, "$name: after it goes on, the command is dead") if $name eq 'all';
	eventually(sub { said($case->{run}) =~ /leadership lost.*candidate; the leader is "contender"/s },
		"$name: it has noticed, and stands again", $case);
	dead_before_takeover($case, "$name: after it goes on");
	my @late = grep { $_->{what} eq 'renew' && $_->{time} > $resumed_at && $_->{epoch} == $epoch }
	  relayed($case->{relay});
	is(scalar @late, 0, "$name: the old term is not renewed after that")
	  || diag(map { sprintf "%.3f s after: %s\n", $_->{time} - $resumed_at, $_->{what} }
		  relayed($case->{relay}));

	give_way($dbh, $case);
	leads_again($case, $name);
	end_beating($case, $name);
}

#
# All of the database is frozen.
#

# Commits need not wait for the standby any more.
rewrite_conf($other, synchronous_standby_names => "''");
my $database = start_beating($other, 'database', \@tree, [ '--ttl', $ttl, @leave ]);
poll_until(sub { starts($database) }, 'the command');

# Its last renewal is behind us when nobody is left who could take one.
freeze($other->{_pid});
freeze(@{ column($on_other,
		q{SELECT pid FROM pg_stat_activity WHERE application_name = 'leaderctl'}) });
my $lease = told(\&row, $on_other,
	q{SELECT extract(epoch FROM expires_in)::float8 AS expires_in
		FROM leader_status WHERE election = 'database'});
freeze(grep { (LeaderElection::parent_of($_) // 0) == $other->{_pid} }
	  map { m,^/proc/(\d+)$, } glob '/proc/[0-9]*');

is(await_end($database->{run}), 123,
	'database: leaderctl does without an answer, gives up, and exits with 123');
is_deeply([ marked($database->{run}) ], [], 'database: nothing is left');
cmp_ok(last_beat($database, (starts($database))[-1]->{epoch}), '<', $lease->{ends_before},
	'database: P4: the command was dead before the lease could end');
told_before_the_end($database, 'database');
thaw();
contend($on_other, [$database]);
dead_before_takeover($database, 'database');

done_testing();
