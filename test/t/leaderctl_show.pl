# leaderctl's commands that show and steer: status, history, watch, depose, pause
# and resume.
#
# Guards what people and scripts read: tables that stand in columns, JSON that is
# the server's own, with every digit of an epoch; every change of leadership while
# one watches, also those that nobody notifies; who may see and do what.  And that
# it is the extension's functions and PostgreSQL's operators that are called,
# wherever the extension lies and whatever the search_path leads to.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use JSON::PP ();
use LeaderElection qw(:DEFAULT move_ahead);
use Leaderctl;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', streaming => 1);
my $schema = q{"an ""odd"" $1; schema'-- %s"};

# No search_path leads to the extension in the database "odd".
$node->safe_psql('postgres', 'DROP EXTENSION leader_election');
$node->safe_psql('postgres', "CREATE DATABASE odd TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'");
$node->safe_psql('odd', <<"EOC");
CREATE SCHEMA $schema;
GRANT USAGE ON SCHEMA $schema TO PUBLIC;
CREATE EXTENSION leader_election SCHEMA $schema;
CREATE ROLE stranger LOGIN;
CREATE ROLE lured LOGIN;
CREATE SCHEMA lure AUTHORIZATION lured;
EOC

# An application finds the extension, and "dbh" is one.
$node->safe_psql('postgres', "ALTER DATABASE odd SET TimeZone = 'Asia/Kathmandu'");
my $dbh = connect_to($node, 'odd');
$dbh->do("SET search_path = $schema, pg_catalog");
my $json = JSON::PP->new->utf8->allow_bignum(0);
my @connection = ('-d', 'odd');

# Epochs with as many digits as there can be.
move_ahead($dbh);

sub run_as
{
	my ($role, $action, @arguments) = @_;
	return leaderctl($node, [ $action, @connection, '-U', $role, @arguments ]);
}

sub run_it { return leaderctl($node, [ @_, @connection ]); }

sub hold
{
	my ($election, $holder, $ttl) = @_;
	my $term = acquire($dbh, $election, $holder, $ttl // '1 hour');

	die "no term of $election" unless is_leader($term);
	return $term->{epoch};
}

sub release { return value($dbh, 'SELECT leader_release(?, ?)', @_); }
sub status { return row($dbh, 'SELECT * FROM leader_status WHERE election = ?', $_[0]); }

# Bytes, as they are printed
sub bytes { my ($words) = @_; utf8::encode($words) if utf8::is_utf8($words); return $words; }

#
# status
#
my %epoch = map { $_ => hold($_, "holder of $_") } 'a rather long name', 'b', "\x{17c}\x{f3}\x{142}w", "\x{65e5}\x{672c}";
hold('free', 'nobody any more');
release('free', status('free')->{epoch});
value($dbh, q{SELECT leader_configure('paused', paused => true)});

{
	my ($code, $out, $err) = run_it('status');
	my @names = qw(election state leader epoch kind paused expires_in acquired_at);

	is($code, 0, 'status') or diag $err;
	is($err, '', 'nothing on stderr');
	utf8::decode($out);
	my ($header, @lines) = split /\n/, $out;
	is_deeply([ split ' ', $header ], \@names, 'a heading');
	is(scalar @lines, 6, 'a line for each election');

	my %start = map { ($_ => index $header, $_) } @names;
	my %line = map { my ($name) = /^(.*?)  /; ($name => $_) } @lines;
	foreach my $election (sort keys %epoch)
	{
		my $shown = bytes($election);
		my $line = $line{$election} // '';

		is(substr($line, 0, length $election), $election, "$shown: its name");
		is(substr($line, $start{state}, 5), 'held ', "$shown: columns stand below their headings");
		is(substr($line, $start{leader}, length "holder of $election"), "holder of $election", "$shown: leader");
		like(substr($line, $start{epoch}), qr/^$epoch{$election} /, "$shown: epoch with all its digits");
		like(substr($line, $start{expires_in}), qr/^00:5\d:/, "$shown: what is left of the lease");
	}
	like($line{free} // '', qr/^free +free /, 'a free election');
	like(substr($line{paused} // '', $start{paused}), qr/^t/, 'one that is paused');
	is_deeply([ map { /^(.*?)  / } @lines ], [ sort keys %epoch, 'free', 'paused' ], 'in the order of their names');

	($code, $out, $err) = run_it('status', '-e', 'b');
	is($code, 0, 'status of one election');
	is(scalar(my @rows = split /\n/, $out), 2, 'is one line');
	like($out, qr/^b +held +holder of b +$epoch{b} /m, 'with what it is');

	($code, $out, $err) = run_it('status', '-e', 'unheard of');
	is($code, 0, 'status of one that there is not');
	like($out, qr/\Aelection +state[^\n]*\n\z/, 'is no line');
}

# As JSON
{
	my ($code, $out, $err) = run_it('status', '--json');
	my @lines = split /\n/, $out;
	my $expected = column($dbh,
		q{SELECT row_to_json(s) FROM leader_status s ORDER BY election COLLATE "C"});

	is($code, 0, 'status --json') or diag $err;
	is(scalar @lines, scalar @$expected, 'a line for each election');
	foreach my $line (@lines)
	{
		my $wanted = bytes(shift @$expected);

		# Time passes between two looks.
		s/("expires_in":)"[^"]*"/$1"..."/ for $line, $wanted;
		is($line, $wanted, 'as row_to_json has it');
	}
	like($lines[0], qr/"epoch":$epoch{'a rather long name'},/, 'every digit of an epoch is there');
	is(ref $json->decode($_), 'HASH', 'a line is an object') for @lines;
}

# Who may not see
{
	my ($code, $out, $err) = run_as('stranger', 'status', '-e', 'b');

	is($code, 0, 'status by a stranger');
	is($err, '', 'is no error');
	like($out, qr/^b *$/m, 'but shows no more than the name');
	($code, $out, $err) = run_as('stranger', 'status', '-e', 'b', '--json');
	is_deeply([ grep { defined } @{ $json->decode($out) }{qw(state leader epoch)} ], [], 'nor as JSON');
	unlike($out, qr/holder of b|$epoch{b}/, 'neither leader nor epoch');

	foreach my $case (
		[ 'depose' => 'depose', '-e', 'b' ], [ 'pause' => 'pause', '-e', 'b' ], [ 'resume' => 'resume', '-e', 'b' ])
	{
		my ($name, @arguments) = @$case;
		($code, $out, $err) = run_as('stranger', @arguments);
		is($code, 125, "$name by a stranger fails");
		is($out, '', "$name: and prints nothing");
		like($err, qr/\Aleaderctl: b: error: [^\n]*\n\z/, "$name: but says why in one line");
		like($err, qr/permission denied|must be a member|42501/i, "$name: that rights are missing");
	}
	value($dbh, q{SELECT leader_configure('stranger''s', owner => current_user)});
	my $run = start_leaderctl($node, [ 'run', '-e', "stranger's", @connection, '-U', 'stranger', '--', 'echo', 'started' ]);
	is(await_end($run), 125, 'run by a stranger fails');
	is(printed($run), '', 'the command is not started');
	like(said($run), qr/\Aleaderctl: stranger's: error: [^\n]*\n\z/, 'which is said in one line');
	is(status('b')->{epoch}, $epoch{b}, 'nothing has changed');
	is(status('b')->{paused} ? 1 : 0, 0, 'nor is it paused');
}

#
# history
#
{
	my @terms;

	foreach my $n (1 .. 4)
	{
		push @terms, hold('told', "leader $n");
		release('told', $terms[-1]) if $n != 2 && $n != 4;
		value($dbh, q{SELECT leader_depose('told')}) if $n == 2;
	}
	my ($code, $out, $err) = run_it('history', '-e', 'told');
	my ($header, @lines) = split /\n/, $out;

	is($code, 0, 'history') or diag $err;
	is_deeply([ split ' ', $header ], [qw(epoch leader acquired_at ended_at end_reason)], 'a heading');
	is_deeply([ map { /^(\d+) / } @lines ], \@terms, 'the terms, the last one last');
	like($lines[0], qr/^$terms[0] +leader 1 .* released$/, 'a term that was released');
	like($lines[1], qr/^$terms[1] +leader 2 .* deposed$/, 'one that was deposed');
	unlike($lines[3], qr/released|deposed|expired/, 'the current one');

	($code, $out, $err) = run_it('history', '-e', 'told', '-n', '2');
	is($code, 0, 'history -n');
	is_deeply([ $out =~ /^(\d+) /mg ], [ @terms[ 2, 3 ] ], 'shows the last ones, in the same order');
	($code, $out, $err) = run_it('history', '-e', 'told', '--json', '-n', '3');
	is($code, 0, 'history --json');
	is($out, join('', map { bytes($_) . "\n" } @{
				column($dbh, q{SELECT row_to_json(t) FROM
					(SELECT epoch, leader, acquired_at, ended_at, end_reason FROM leader_term
					  WHERE election = 'told' ORDER BY epoch DESC LIMIT 3) t ORDER BY epoch}) }),
		'is as row_to_json has it');
	($code, $out, $err) = run_it('history', '-e', 'unheard of', '--json');
	is("$code$out", '0', 'one without terms has no line');
}

#
# depose, pause, resume
#
{
	my $old = hold('steered', 'leader');
	my ($code, $out, $err) = run_it('depose', '-e', 'steered');

	is($code, 0, 'depose') or diag $err;
	like($out, qr/\A\d+\n\z/, 'prints a number');
	chomp $out;
	cmp_ok($out, '>', $old, 'above the epoch of who was deposed');
	is(status('steered')->{leader}, undef, 'nobody leads');
	is(sqlstate($dbh, 'SELECT leader_fence(?, ?)', 'steered', $old), 'LE001', 'P2: its token is stale');
	is(sqlstate($dbh, 'SELECT leader_fence(?, ?)', 'steered', $out), 'LE001', "the number is nobody's token");
	cmp_ok(hold('steered', 'next'), '>', $out, 'P1: and the next epoch is above it');

	($code, $out, $err) = run_it('depose', '-e', 'steered', '--json');
	my $answer = $json->decode($out);
	is($code, 0, 'depose --json');
	is($answer->{election}, 'steered', 'names the election');
	is($answer->{epoch}, status('steered')->{epoch}, 'and the epoch');

	($code, $out, $err) = run_it('depose', '-e', 'steered');
	is("$code$out", '0', 'where nobody led, no number is printed');
	like($err, qr/\A[^\n]*there was no leader\n\z/, 'but said');
	($code, $out, $err) = run_it('depose', '-e', 'steered', '--json');
	is($json->decode($out)->{epoch}, undef, 'and JSON has none');

	($code, $out, $err) = run_it('pause', '-e', 'steered');
	is($code, 0, 'pause') or diag $err;
	ok(!is_leader(acquire($dbh, 'steered', 'next', '1 hour')), 'nobody acquires');
	($code, $out, $err) = run_it('resume', '-e', 'steered', '--json', '-q');
	is($code, 0, 'resume');
	is_deeply($json->decode($out),
		{ election => 'steered', paused => JSON::PP::false() }, 'says so as JSON');
	is($err, '', 'and --quiet nothing else');
	hold('steered', 'next');
}

#
# A search_path that leads to other functions and operators
#
connect_to($node, 'odd', user => 'lured')->do(<<'EOC');
CREATE FUNCTION lure.trap() RETURNS bigint LANGUAGE plpgsql AS
	$$ BEGIN RAISE EXCEPTION 'the wrong function'; END $$;
CREATE FUNCTION lure.same(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT lure.trap() > 0';
CREATE FUNCTION lure.same(name, name) RETURNS boolean LANGUAGE sql AS 'SELECT lure.trap() > 0';
CREATE FUNCTION lure.same(oid, oid) RETURNS boolean LANGUAGE sql AS 'SELECT lure.trap() > 0';
CREATE FUNCTION lure.same(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT lure.trap() > 0';
CREATE OPERATOR lure.= (LEFTARG = text, RIGHTARG = text, FUNCTION = lure.same);
CREATE OPERATOR lure.= (LEFTARG = name, RIGHTARG = name, FUNCTION = lure.same);
CREATE OPERATOR lure.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = lure.same);
CREATE OPERATOR lure.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = lure.same);
CREATE OPERATOR lure.< (LEFTARG = text, RIGHTARG = text, FUNCTION = lure.same);
CREATE OPERATOR lure.< (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = lure.same);
CREATE OPERATOR lure.> (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = lure.same);
CREATE FUNCTION lure.leader_acquire(text, text, text) RETURNS bigint LANGUAGE sql AS 'SELECT lure.trap()';
CREATE FUNCTION lure.leader_depose(text) RETURNS bigint LANGUAGE sql AS 'SELECT lure.trap()';
CREATE FUNCTION lure.leader_renew(text, bigint) RETURNS bigint LANGUAGE sql AS 'SELECT lure.trap()';
CREATE FUNCTION lure.leader_release(text, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT lure.trap() > 0';
CREATE FUNCTION lure.row_to_json(record) RETURNS json LANGUAGE plpgsql AS 'BEGIN PERFORM lure.trap(); RETURN NULL; END';
CREATE VIEW lure.leader_status AS SELECT 'wrong'::text AS election, 'wrong'::text AS state;
CREATE TABLE lure.pg_extension (extname name, extnamespace oid);
CREATE TABLE lure.pg_namespace (oid oid, nspname name);
CREATE DOMAIN lure.interval AS text CHECK (lure.trap() > 0);
CREATE DOMAIN lure.int8 AS bigint CHECK (lure.trap() > 0);
CREATE DOMAIN lure.bool AS boolean CHECK (lure.trap() > 0);
CREATE DOMAIN lure.jsonb AS text CHECK (lure.trap() > 0);
ALTER ROLE lured SET search_path = lure, pg_catalog;
EOC
is(sqlstate(connect_to($node, 'odd', user => 'lured'), q{SELECT 'a'::text = 'a'}),
	'P0001', 'the search_path leads astray');
{
	my ($code, $out, $err);
	my $run = start_leaderctl($node,
		[ 'run', '-e', 'lure', '--metadata', '{"at": 1}', '--ttl', '10min', @connection, '-U', 'lured',
			'--', 'sh', '-c', 'echo $LEADER_EPOCH; trap "exit 0" TERM; while :; do sleep 0.05; done' ]);

	await_printed($run, qr/^\d+\n/);
	is(printed($run), status('lure')->{epoch} . "\n", 'run: leads all the same');
	poll_until(
		sub {
			# Whoever is told of an end looks, and a leader does that by renewing.
			value($dbh, q{SELECT pg_notify('leader_election', '{"election": "lure", "event": "end"}')});
			value($dbh, q{SELECT renewals FROM leader_stats WHERE election = 'lure'}) || said($run) =~ /warning/;
		},
		'a renewal');
	kill 'TERM', $run->{pid};
	is(await_end($run), 0, 'renews, and ends');
	unlike(said($run), qr/wrong|warning/, 'with nothing to complain of');
	is(status('lure')->{state}, 'free', 'the lease is given back');

	my $epoch = value($dbh, q{SELECT epoch FROM leader_acquire('lure', 'somebody', '1 hour')});
	foreach my $case (
		[ qr/^lure +held +somebody +$epoch /m, 'status', '-e', 'lure' ],
		[ qr/"epoch":$epoch\b/, 'status', '-e', 'lure', '--json' ],
		[ qr/^$epoch /m, 'history', '-e', 'lure' ],
		[ qr/"epoch":$epoch\b/, 'history', '-e', 'lure', '-n', '1', '--json' ],
		[ qr/^\d+$/, 'depose', '-e', 'lure' ],
		[ qr/^$/, 'pause', '-e', 'lure' ],
		[ qr/^$/, 'resume', '-e', 'lure' ])
	{
		my ($expected, @arguments) = @$case;

		($code, $out, $err) = run_as('lured', @arguments);
		is($code, 0, "@arguments") or diag $err;
		like($out, $expected, 'has the right answer');
	}
	$run = start_leaderctl($node, [ 'watch', '-e', 'lure', @connection, '-U', 'lured' ]);
	await_printed($run, qr/lure: nobody leads/);
	pass('watch has the right answer');
	kill 'TERM', $run->{pid};
	await_end($run);

	$run = start_leaderctl($node, [ 'run', '-e', 'reluctant lure', '--reluctant', '1ms', @connection, '-U', 'lured', '--', 'true' ]);
	is(await_end($run), 0, 'so has a reluctant candidate') or diag said($run);
	$run = start_leaderctl($node, [ 'run', '-e', 'session lure', '--session', @connection, '-U', 'lured', '--', 'true' ]);
	is(await_end($run), 0, 'and one for a session term') or diag said($run);
}

#
# watch
#
my $backup = 'watched';
$node->backup($backup);
my $standby = new_standby($node, 'standby', $backup, "wal_retrieve_retry_interval = '100 ms'");
$standby->start;

my %watch = (
	all => start_leaderctl($node, [ 'watch', '--json', @connection ]),
	one => start_leaderctl($node, [ 'watch', '-e', 'watched', @connection ]),
	standby => start_leaderctl($standby, [ 'watch', '--json', '-e', 'watched', @connection ]),
	stranger => start_leaderctl($node, [ 'watch', '--json', '-e', 'watched', @connection, '-U', 'stranger' ]));

# The events of an election so far; each line that was written whole is one.
sub events
{
	my ($name, $election) = @_;
	my $out = printed($watch{$name});

	$out =~ s/[^\n]*\z//;
	return grep { $_->{election} eq $election } map { $json->decode($_) } split /\n/, $out;
}

# Waits for the next event of an election.
my %told;

sub await_event
{
	my ($name, $election) = @_;
	my $seen = $told{$name}{$election}++ // 0;
	my @events;

	eval {
		poll_until(
			sub {
				@events = events($name, $election);
				@events > $seen || ended($watch{$name});
			},
			"the next event of $election");
	};
	if (@events <= $seen)
	{
		fail("the next event of $election is seen");
		die 'watch has said: ' . said($watch{$name});
	}
	my $event = $events[$seen];
	return join ' ', map { $event->{$_} // '-' } qw(event leader epoch);
}

is(await_event('all', 'b'), "leader holder of b $epoch{b}", 'watch begins with what is the case');
is(await_event('all', 'free'), 'free - ' . status('free')->{epoch}, 'vacancies, too');
like(await_event('all', 'paused'), qr/^free /, 'a paused election');
like(await_event('all', 'paused'), qr/^paused /, 'that it is paused');
is(await_event('all', "\x{17c}\x{f3}\x{142}w"), "leader holder of \x{17c}\x{f3}\x{142}w $epoch{qq(\x{17c}\x{f3}\x{142}w)}",
	'names are in UTF-8');

my $watched = hold('watched', 'leader');
is(await_event('all', 'watched'), "leader leader $watched", 'the begin of a term');
is(await_event('standby', 'watched'), "leader leader $watched", 'on a standby, too');
is(await_event('stranger', 'watched'), 'hidden - -', 'a stranger hears of an election, and no more');
release('watched', $watched);
is(await_event('all', 'watched'), "free - $watched", 'a release leaves a vacancy');
is(await_event('standby', 'watched'), "free - $watched", 'on a standby, too');
$watched = hold('watched', 'first');
is(await_event('all', 'watched'), "leader first $watched", 'the next term');
$dbh->do('BEGIN');
release('watched', $watched);
my $second = hold('watched', 'second');
$dbh->do('COMMIT');
is(await_event('all', 'watched'), "leader second $second", 'a hand-over');
my $deposed = value($dbh, q{SELECT leader_depose('watched')});
is(await_event('all', 'watched'), "free - $deposed", 'a depose');

# What nobody notifies
my $short = hold('short', 'short-lived', '3 s');
is(await_event('all', 'short'), "leader short-lived $short", 'a short lease');
is(await_event('all', 'short'), "expired - $short", 'runs out');
{
	my $session = connect_to($node, 'odd');

	$session->do("SET search_path = $schema, pg_catalog");
	my $epoch = value($session, q{SELECT epoch FROM leader_acquire_session('session', 'bound')});
	is(await_event('all', 'session'), "leader bound $epoch", 'a session term');
	$session->disconnect;
	like(await_event('all', 'session'), qr/^(?:free|expired) - $epoch$/, 'ends with its connection');
}
value($dbh, q{SELECT leader_configure('watched', paused => true)});
like(await_event('all', 'watched'), qr/^paused /, 'a pause');
value($dbh, q{SELECT leader_configure('watched', paused => false)});
like(await_event('all', 'watched'), qr/^resumed /, 'and its end');

# A restart of the server
$dbh->disconnect;
$node->restart;
$dbh = connect_to($node, 'odd');
$dbh->do("SET search_path = $schema, pg_catalog");
await_said($watch{$_}, qr/warning: /) for qw(all one);
$watched = hold('watched', 'after');
is(await_event('all', 'watched'), "leader after $watched", 'watching goes on after a restart of the server');
release('watched', $watched);
is(await_event('all', 'watched'), "free - $watched", 'as before');
ok(value($dbh, q{SELECT leader_drop('watched')}), 'the election is dropped');
like(await_event('all', 'watched'), qr/^dropped /, 'which is seen, too');
is(scalar events('all', 'b'), 1, 'nothing is told of what has not changed');

poll_until(sub { printed($watch{one}) =~ /watched: dropped\n\z/ }, 'the same for people');
unlike(printed($watch{one}), qr/^\S+ (?!watched: )/m, 'one election is watched alone');
like(printed($watch{one}), qr/^\d{4}-\d\d-\d\dT[\d:.]+Z watched: "second" leads with epoch $second$/m,
	'a line says what has become of it');
unlike(printed($watch{stranger}), qr{"leader": "|"epoch": \d}, 'a stranger was not told who led');
foreach my $name (sort keys %watch)
{
	kill 'TERM', $watch{$name}{pid};
	is(await_end($watch{$name}), 143, "watch ($name) ends when it is told to");
}

#
# A standby
#
{
	my ($code, $out, $err) = leaderctl($standby, [ 'status', '--json', '-e', 'b', @connection ]);
	my $row = $json->decode($out);

	is($code, 0, 'status on a standby') or diag $err;
	is("$row->{leader} $row->{epoch}", "holder of b $epoch{b}", 'shows who leads');
	is($row->{expires_in}, undef, 'but not for how long');
	($code, $out, $err) = leaderctl($standby, [ 'history', '-e', 'told', @connection ]);
	is("$code " . (() = $out =~ /^\d/mg), '0 4', 'history on a standby');
	$standby->stop;
}

done_testing();
