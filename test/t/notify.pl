# Notifications: whoever listens on the channel leader_election is told when a
# term begins and when one ends, in the database where it does, once that has
# committed; never of a renewal.  They say where to look and no more: they name
# the election and the event, and a forged one changes nothing.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use JSON::PP ();
use LeaderElection;
use Test::More;

my $node = new_node('main');

# Names with characters that not every encoding has
$node->safe_psql('postgres', "CREATE DATABASE main TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'");
$node->safe_psql('postgres', 'CREATE ROLE anybody LOGIN');
$node->safe_psql('main', 'CREATE EXTENSION leader_election');

my $dbh = connect_to($node, 'main');
my $other = connect_to($node, 'main');
my $listener = connect_to($node, 'main', user => 'anybody');
my $elsewhere = connect_to($node, 'postgres');
my $json = JSON::PP->new->utf8;
my $mark = 0;

$_->do('LISTEN leader_election') for $listener, $elsewhere;

# What was heard since the last call.  Notifications arrive in the order of
# commits, so nothing that was sent before arrives after a mark of our own.
sub payloads
{
	my ($from) = @_;
	my $end = 'mark ' . ++$mark;
	my @heard;

	$from //= $listener;
	value($from == $elsewhere ? $elsewhere : $dbh,
		"SELECT pg_notify('leader_election', ?)", $end);
	poll_until(
		sub {
			while (my $notify = $from->pg_notifies)
			{
				return 1 if $notify->[2] eq $end;
				push @heard, $notify->[2];
			}
			return 0;
		},
		'the mark');
	return @heard;
}

sub parse
{
	my ($payload) = @_;
	utf8::encode($payload) if utf8::is_utf8($payload);
	return $json->decode($payload);
}

# "end a, begin b"
sub heard
{
	return join ', ', map {
		my $event = parse($_);
		my $text = "$event->{event} $event->{election}";
		utf8::encode($text);
		$text;
	} payloads();
}

sub acquire_session
{
	my ($session, $election, $holder, $ttl) = @_;
	return row($session,
		'SELECT is_leader, epoch FROM leader_acquire_session(?, ?, ?::interval)',
		$election, $holder, $ttl);
}

sub release
{
	my ($session, $election, $epoch) = @_;
	return value($session, 'SELECT leader_release(?, ?)', $election, $epoch);
}

is(heard(), '', 'nothing yet');

# Begin and end, of both kinds
foreach my $kind ('lease', 'session')
{
	my $begin = sub {
		my ($session, $election, $holder, $ttl) = @_;
		return $kind eq 'session'
		  ? acquire_session($session, $election, $holder, $ttl)
		  : acquire($session, $election, $holder, $ttl // '1 hour');
	};

	my $term = $begin->($dbh, $kind, 'leader');
	ok(is_leader($term), "$kind: acquired");
	my @payloads = payloads();
	is(scalar @payloads, 1, "$kind: the begin of a term is notified once");
	is_deeply(
		parse($payloads[0]),
		{ election => $kind, event => 'begin' },
		"$kind: with election and event, and nothing else");

	# Going on, losing and looking
	ok(is_leader($begin->($dbh, $kind, 'leader')), "$kind: acquired again");
	ok(is_leader(renew($dbh, $kind, $term->{epoch})), "$kind: renewed");
	value($dbh, 'SELECT count(*) FROM leader_renew_all(?)', 'leader');
	ok(value($dbh, 'SELECT leader_set_metadata(?, ?, ?)', $kind, $term->{epoch}, '{"a": 1}'),
		"$kind: metadata set");
	ok(value($dbh, 'SELECT leader_check(?, ?)', $kind, $term->{epoch}), "$kind: checked");
	ok(!is_leader($begin->($other, $kind, 'other')), "$kind: a losing bid");
	ok(!is_leader(acquire($other, $kind, 'other', '1 hour', '100 ms')),
		"$kind: a losing bid that waited");
	ok(!release($other, $kind, $term->{epoch} - 1), "$kind: a release of another term");
	is(heard(), '', "$kind: nothing of it is notified");

	ok(release($dbh, $kind, $term->{epoch}), "$kind: released");
	is(heard(), "end $kind", "$kind: the end of a term is notified");
	ok(!release($dbh, $kind, $term->{epoch}), "$kind: released again");
	is(heard(), '', "$kind: once");

	# Only what has committed
	$dbh->do('BEGIN');
	$begin->($dbh, $kind, 'leader');
	value($other, "SELECT pg_notify('leader_election', 'wait for me')");
	poll_until(
		sub {
			my $notify = $listener->pg_notifies;
			$notify && $notify->[2] eq 'wait for me';
		},
		'a later notification');
	ok(1, "$kind: the begin of a term is not notified before its commit");
	$dbh->do('ROLLBACK');
	is(heard(), '', "$kind: nor is one that was rolled back");

	$dbh->do('BEGIN');
	$dbh->do('SAVEPOINT s');
	$begin->($dbh, "$kind, undone", 'leader');
	$dbh->do('ROLLBACK TO s');
	$begin->($dbh, "$kind, kept", 'leader');
	$dbh->do('COMMIT');
	is(heard(), "begin $kind, kept", "$kind: nor one that went with a savepoint");

	$dbh->do('BEGIN');
	$term = $begin->($dbh, "$kind, second try", 'leader');
	$dbh->do('SAVEPOINT s');
	release($dbh, "$kind, second try", $term->{epoch});
	$dbh->do('ROLLBACK TO s');
	$dbh->do('COMMIT');
	is(heard(), "begin $kind, second try", "$kind: nor an end that went with a savepoint");
	$dbh->do('BEGIN');
	release($dbh, "$kind, second try", $term->{epoch});
	$dbh->do('ROLLBACK');
	is(heard(), '', "$kind: nor one that was rolled back");
	$dbh->do('BEGIN');
	release($dbh, "$kind, second try", $term->{epoch});
	$dbh->do('COMMIT');
	is(heard(), "end $kind, second try", "$kind: but the one that was committed");

	# An error at COMMIT: the transaction's own fence is stale by then.
	my $leader = acquire($other, "$kind, fenced", 'leader', '100 ms');
	payloads();
	$dbh->do('BEGIN');
	value($dbh, 'SELECT leader_fence(?, ?)', "$kind, fenced", $leader->{epoch});
	$begin->($dbh, "$kind, failed commit", 'leader');
	poll_until(
		sub { is_leader(acquire($other, "$kind, fenced", 'other', '1 hour')) },
		'a takeover');
	is(sqlstate($dbh, 'COMMIT'), 'LE001', "$kind: a commit that fails");
	is(heard(), "end $kind, fenced, begin $kind, fenced",
		"$kind: notifies nothing; a takeover notifies the end and the begin");

	# Nothing runs at an expiry or at the end of a session: the next term tells.
	$term = $begin->($dbh, "$kind, expires", 'leader', '100 ms') if $kind eq 'session';
	$term = acquire($dbh, "$kind, expires", 'leader', '100 ms') if $kind eq 'lease';
	is(heard(), "begin $kind, expires", "$kind: a short term begins");
	poll_until(
		sub { !value($dbh, 'SELECT leader_check(?, ?)', "$kind, expires", $term->{epoch}) },
		'the expiry');
	is(heard(), '', "$kind: an expiry is not notified by itself");
	$begin->($other, "$kind, expires", 'other');
	is(heard(), "end $kind, expires, begin $kind, expires",
		"$kind: but by the takeover, before its begin");
	my $epoch = value($other, 'SELECT epoch FROM leader_status WHERE election = ?',
		"$kind, expires");
	release($other, "$kind, expires", $epoch);
	is(heard(), "end $kind, expires", "$kind: and ends in its turn");

	$term = acquire($dbh, "$kind, late", 'leader', '100 ms');
	poll_until(
		sub { !value($dbh, 'SELECT leader_check(?, ?)', "$kind, late", $term->{epoch}) },
		'the expiry');
	release($dbh, "$kind, late", $term->{epoch});
	is(heard(), "begin $kind, late, end $kind, late",
		"$kind: the release of a term that ran out is its end");
}

# The end of a session
{
	my $session = connect_to($node, 'main');

	acquire_session($session, 'dies', 'leader');
	is(heard(), 'begin dies', 'the term of a session begins');
	$session->disconnect;
	poll_until(
		sub { is_leader(acquire($dbh, 'dies', 'next', '1 hour')) },
		'the end of a session');
	is(heard(), 'end dies, begin dies', 'its end is told by the next term');
}

# A takeover that is rolled back
{
	my $term = acquire($dbh, 'not taken over', 'leader', '100 ms');
	payloads();
	$other->do('BEGIN');
	poll_until(
		sub { is_leader(acquire($other, 'not taken over', 'next', '1 hour')) },
		'the expiry');
	$other->do('ROLLBACK');
	is(heard(), '', 'a takeover that is rolled back is not notified');
}

# Several in one transaction
$dbh->do('BEGIN');
acquire($dbh, "together $_", 'leader', '1 hour') for 1 .. 3;
$dbh->do('COMMIT');
is( heard(), 'begin together 1, begin together 2, begin together 3',
	'every term that begins in a transaction is notified');
value($dbh, "SELECT count(leader_release(election, epoch)) FROM leader_status
	WHERE election LIKE 'together %'");
is( join(', ', sort split /, /, heard()),
	'end together 1, end together 2, end together 3',
	'and every one that ends in a statement');

# Names that JSON, SQL and terminals take amiss
foreach my $name (
	q{double " quote}, q{two "" of "them"}, q{single ' quote}, q{back \\ slash},
	q{\\"}, q{\\}, q{"}, q{\\u0041 \\n}, q{", "event": "end}, q{a, b = {c}}, q{</script>},
	' blanks  around ', "W\x{e4}hler \x{20ac} \x{9078}\x{6319} \x{1f5f3}",
	"\x{2028}", "e\x{301}", '"' x 255, '\\' x 255, "\x{1f5f3}" x 63)
{
	my $shown = $name;
	utf8::encode($shown);
	foreach my $event ('begin', 'end')
	{
		my $epoch = value($dbh, 'SELECT epoch FROM leader_acquire(?, ?)', $name, 'leader');
		release($dbh, $name, $epoch) if $event eq 'end';
		my @payloads = payloads();
		my $parsed = eval { parse($payloads[0]) };

		is(scalar @payloads, 1, "$event of '$shown': notified once");
		is_deeply([ sort keys %$parsed ], [ 'election', 'event' ],
			"$event of '$shown': as a JSON object of two");
		is($parsed->{election}, $name, "$event of '$shown': with the name as it is");
		is($parsed->{event}, $event, "$event of '$shown': and the event");
	}
}

# Clients look for an event by its database.
is(join(' ', payloads($elsewhere)), '', 'nothing is heard in another database');

# Forged ones, by a role that may do nothing
{
	my $forger = connect_to($node, 'main', user => 'anybody');
	my $lease = acquire($dbh, 'forged', 'leader', '1 hour');
	my $session = acquire_session($dbh, 'forged session', 'leader');
	my $waiter = connect_to($node, 'main');

	payloads();
	start_query($waiter,
		"SELECT is_leader, leader FROM leader_acquire('forged', 'waiter', '1 hour', '10 s')");
	wait_for_state($dbh, backend_pid($waiter), qr/Extension/);
	my @forged = (
		'{"election": "forged", "event": "end"}',
		'{"election": "forged session", "event": "end"}',
		'{"election": "forged", "event": "begin"}',
		'{"election": ', 'garbage', '', 'x' x 7000);
	value($forger, "SELECT pg_notify('leader_election', ?)", $_) for @forged;
	is(scalar payloads(), scalar @forged, 'anybody can forge a notification');
	ok(value($dbh, 'SELECT leader_check(?, ?)', 'forged', $lease->{epoch}),
		'a forged end ends no lease');
	ok(value($dbh, 'SELECT leader_check(?, ?)', 'forged session', $session->{epoch}),
		'and no term of a session');
	is_deeply(
		column($dbh, "SELECT leader FROM leader_status WHERE election LIKE 'forged%'"),
		[ 'leader', 'leader' ], 'the view shows the leaders');
	wait_for_state($dbh, backend_pid($waiter), qr/Extension/);
	ok(!query_done($waiter), 'who waits is not deceived');
	release($dbh, 'forged', $lease->{epoch});
	my ($state, $rows) = finish_query($waiter);
	ok($rows->[0]->{is_leader}, 'and hears of the real end');
	is(heard(), 'end forged, begin forged', 'as does who listens');
}

# The switch
{
	my $session = connect_to($node, 'main', user => 'anybody');

	# Before the library is loaded the server knows nothing of the setting.
	sqlstate($session, 'SET leader_election.notify = off');
	ok(is_leader(acquire($session, 'anybody', 'anybody', '1 hour')), 'anybody leads');
	is(heard(), 'begin anybody', 'which cannot be hushed up before the library is loaded');
	is(sqlstate($session, 'SET leader_election.notify = off'),
		'42501', 'only a superuser may switch notifications off');
}
$dbh->do('SET leader_election.notify = off');
{
	my $term = acquire($dbh, 'quiet', 'leader', '1 hour');
	my $session = acquire_session($dbh, 'quiet session', 'leader');

	ok(is_leader($term) && is_leader($session), 'terms begin');
	ok(release($dbh, 'quiet', $term->{epoch}), 'and end');
	is(heard(), '', 'leader_election.notify = off: quietly');
	is(value($dbh, "SELECT count(*) FROM leader_term WHERE election LIKE 'quiet%'"),
		2, 'the views know of them');
	$dbh->do('RESET leader_election.notify');
	ok(release($dbh, 'quiet session', $session->{epoch}), 'another ends');
	is(heard(), 'end quiet session', 'and is notified when that is on again');
}

done_testing();
