# The checker itself: histories that break a promise are rejected for that
# promise, and good ones that look like it are accepted.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use Check;
use Test::More;

my $id;

# An operation as two events: from t0 to t1 (undef: no answer).
sub op
{
	my ($t0, $t1, $c, $op, %more) = @_;
	my %answer;

	$id++;
	$answer{$_} = delete $more{$_}
	  foreach grep { exists $more{$_} } qw(out st lead x xid locks val);
	$answer{ep} = delete $more{answer} if exists $more{answer};
	my @events = (
		{
			k => 'inv', id => $more{id} // "op$id", t => $t0, c => $c, op => $op, el => 'l0',
			srv => 'n1', kind => 'lease', ttl => 1, ses => "$c/1", %more
		});
	push @events, { k => 'ret', id => $events[0]->{id}, t => $t1, out => 'ok', %answer }
	  if defined $t1;
	return @events;
}

sub grant
{
	my ($t0, $t1, $c, $epoch, %more) = @_;
	return op($t0, $t1, $c, 'acquire', lead => 1, answer => $epoch, x => 1,
		xid => $epoch, %more);
}

sub renew { my ($t0, $t1, $c, $epoch, %more) = @_;
	return op($t0, $t1, $c, 'renew', ep => $epoch, lead => 1, x => 1, %more); }

sub release { my ($t0, $t1, $c, $epoch, %more) = @_;
	return op($t0, $t1, $c, 'release', ep => $epoch, val => 1, %more); }

# A write, and where its row lies if it does.
sub wrote
{
	my ($t0, $t1, $c, $epoch, $lsn, %more) = @_;
	my @events = op($t0, $t1, $c, 'write', ep => $epoch, tab => 'w_set', %more);
	my $e = $events[0];

	push @events,
	  { k => 'row', srv => $e->{srv}, tab => $e->{tab}, id => $e->{id}, el => $e->{el},
		ep => $epoch, lsn => $lsn }
	  if defined $lsn;
	return @events;
}

sub commit { return { k => 'commit', srv => $_[2] // 'n1', xid => $_[0], lsn => $_[1] }; }
sub finish { return { k => 'end', srv => $_[0] // 'n1' }; }
sub term
{
	my ($epoch, $leader, $reason, %more) = @_;
	return {
		k => 'term', srv => 'n1', el => 'l0', ep => $epoch, leader => $leader,
		ended => $reason ? 1 : 0, reason => $reason, %more };
}
sub lag { return { k => 'branch', srv => 'n2', parent => 'n1', mode => 'lag', t => 10,
		caught => 5, lsn => 500, @_ }; }

sub verdict
{
	my $checked = Check::check([@_]);
	my %promises = map { $_->{promise} => 1 } @{ $checked->{violations} };
	return join(' ', sort keys %promises) || 'good';
}

sub is_good { my ($name, @events) = @_; is(verdict(@events), 'good', "good: $name"); return; }
sub is_bad { my ($promise, $name, @events) = @_;
	is(verdict(@events), $promise, "bad: $name"); return; }

# P1
is_good('one after another', grant(1, 2, 'a', 10), grant(3, 4, 'b', 11));
is_good('the same holder is told again', grant(1, 2, 'a', 10),
	op(2.1, 2.2, 'a', 'acquire', lead => 1, answer => 10, x => 1));
is_bad('P1', 'two holders of one epoch', grant(1, 2, 'a', 10), grant(5, 6, 'b', 10));
is_bad('P1', 'one epoch of two elections', grant(1, 2, 'a', 10),
	grant(5, 6, 'b', 10, el => 'l1'));
is_bad('P1', 'an epoch that goes down', grant(1, 2, 'a', 10), grant(3, 4, 'b', 9));
is_good('grants at the same time may be told in any order',
	grant(1, 6, 'a', 10, x => 0.1), grant(2, 3, 'b', 9, x => 0.1));
is_bad('P1', 'an epoch was told, rolled back and issued again',
	op(1, 2, 'a', 'acquire', out => 'refused'),
	{ k => 'told', id => "op$id", t0 => 1, t => 1.5, ep => 10, x => 1 },
	grant(3, 4, 'b', 10));
is_bad('P1', 'an epoch was told, forgotten by a crash and issued again',
	op(1, undef, 'a', 'acquire'), { k => 'told', id => "op$id", t0 => 1, t => 1.5, ep => 10, x => 1 },
	grant(3, 4, 'b', 10));
is_bad('P1', 'what a depose answers is a term of somebody',
	op(1, 2, 'x', 'depose', val => 12), grant(3, 4, 'b', 12));
is_bad('P1', 'a lagging standby issues an epoch again', grant(6, 7, 'a', 10), lag(),
	grant(12, 13, 'b', 10, srv => 'n2'));
is_bad('P1', 'or a lower one', grant(6, 7, 'a', 10), lag(), grant(12, 13, 'b', 8, srv => 'n2'));
is_good('but forks are not in order', lag(), grant(12, 13, 'b', 1000, srv => 'n2'),
	grant(14, 15, 'a', 11, srv => 'n1'));
is_good('a grant whose answer was lost, told later', op(1, undef, 'a', 'acquire'),
	op(3, 4, 'b', 'acquire', lead => undef), op(1.5, 1.6, 'c', 'acquire', lead => undef),
	op(2, 2.1, 'a', 'acquire', lead => 1, answer => 7, x => 1));
is_bad('P1', 'an epoch that nobody was granted is renewed', renew(1, 2, 'a', 77));

# P2
my @takeover = (grant(1, 2, 'a', 10), commit(10, 100), grant(4, 5, 'b', 11), commit(11, 300));
my @terms = (term(10, 'a', 'expired'), term(11, 'b'));
is_good('each writes in its time', @takeover, @terms, wrote(2, 3, 'a', 10, 200),
	wrote(5, 6, 'b', 11, 400), finish());
is_good('a paused write without an answer was committed in time', @takeover, @terms,
	wrote(2, undef, 'a', 10, 299), finish());
is_good('and one that was not', @takeover, @terms, wrote(2, undef, 'a', 10), finish());
is_good('a write was committed before the takeover and answered long after', @takeover, @terms,
	wrote(2, 50, 'a', 10, 299), finish());
is_bad('P2', 'a paused write was committed after the takeover', @takeover, @terms,
	wrote(2, 6, 'a', 10, 301), finish());
is_bad('P2', 'and nobody knows', @takeover, @terms, wrote(2, undef, 'a', 10, 301), finish());
is_bad('P2', 'the row of the newer epoch alone tells', grant(1, 2, 'a', 10),
	op(4, undef, 'b', 'acquire'), grant(4.1, 5, 'b', 11, xid => undef), @terms,
	wrote(5, 6, 'b', 11, 300), wrote(2, undef, 'a', 10, 301), commit(10, 100), finish());
is_bad('P2', 'a write after its term was released', grant(1, 2, 'a', 10), commit(10, 100),
	release(3, 4, 'a', 10, xid => 90), commit(90, 200), wrote(2, undef, 'a', 10, 201),
	term(10, 'a', 'released'), finish());
is_good('a write in the transaction that releases', grant(1, 2, 'a', 10), commit(10, 100),
	release(3, 4, 'a', 10, xid => 90), commit(90, 200), wrote(2, 4, 'a', 10, 200),
	term(10, 'a', 'released'), finish());
is_bad('P2', 'a write after its term was deposed', grant(1, 2, 'a', 10), commit(10, 100),
	op(3, 4, 'x', 'depose', val => 12, xid => 90), commit(90, 200),
	wrote(2, undef, 'a', 10, 201), term(10, 'a', 'deposed'), finish());
is_bad('P2', 'a write under an epoch of nobody', wrote(1, 2, 'a', 5, 100), finish());
is_bad('P2', 'a stale write was acknowledged', grant(1, 2, 'a', 10), grant(4, 5, 'b', 11),
	wrote(6, 7, 'a', 10));
is_bad('P2', 'a stale TRUNCATE', grant(1, 2, 'a', 10), grant(4, 5, 'b', 11),
	op(6, 7, 'a', 'other', how => 'truncate', ep => 10));
is_bad('P2', 'a TRUNCATE without a token', op(6, 7, 'a', 'other', how => 'truncate'));
is_good('both are refused', grant(1, 2, 'a', 10), grant(4, 5, 'b', 11),
	op(6, 7, 'a', 'other', how => 'truncate', ep => 10, out => 'refused', st => 'LE001'),
	op(6, 7, 'a', 'other', how => 'truncate', out => 'refused', st => 'LE002'));
is_good('who was sent before the takeover was acknowledged may still pass',
	grant(1, 2, 'a', 10), grant(4, 5, 'b', 11), wrote(4.9, 7, 'a', 10));
is_bad('P2', 'a fenced transaction was prepared', op(1, 2, 'a', 'prepare', ep => 1));
is_good('another server does not know the term that a fork has',
	grant(1, 2, 'a', 10, x => 0.1), lag(), grant(12, 13, 'b', 1000, srv => 'n2'),
	wrote(14, 15, 'a', 10, 600));

# P4
is_bad('P4', 'a grant before the time has run out', grant(1, 2, 'a', 10), grant(1.5, 1.9, 'b', 11));
is_good('right at its end', grant(1, 2, 'a', 10), grant(1.5, 2, 'b', 11));
is_bad('P4', 'a renewal counts', grant(1, 1.1, 'a', 10), renew(1.9, 1.95, 'a', 10),
	grant(2.5, 2.8, 'b', 11));
is_good('a renewal without an answer does not', grant(1, 1.1, 'a', 10),
	op(1.9, undef, 'a', 'renew', ep => 10), grant(2.5, 2.8, 'b', 11));
is_good('nor one that said no', grant(1, 1.1, 'a', 10),
	op(2.3, 2.4, 'a', 'renew', ep => 10, lead => 0), grant(2.5, 2.8, 'b', 11));
is_good('after a release', grant(1, 1.1, 'a', 10), release(1.2, 1.3, 'a', 10), grant(1.4, 1.5, 'b', 11));
is_good('after a release without an answer', grant(1, 1.1, 'a', 10),
	op(1.2, undef, 'a', 'release', ep => 10), grant(1.4, 1.5, 'b', 11));
is_bad('P4', 'after a release that did nothing', grant(1, 1.1, 'a', 10),
	op(1.2, 1.3, 'a', 'release', ep => 10, val => 0), grant(1.4, 1.5, 'b', 11));
is_bad('P4', 'after the release of another epoch', grant(1, 1.1, 'a', 10),
	op(1.2, 1.3, 'a', 'release', ep => 9, val => 1), grant(1.4, 1.5, 'b', 11));
is_good('after a depose', grant(1, 1.1, 'a', 10), op(1.2, 1.3, 'x', 'depose', val => 12),
	grant(1.4, 1.5, 'b', 13));
is_bad('P4', 'before the depose', grant(1, 1.1, 'a', 10), grant(1.2, 1.3, 'b', 11),
	op(1.4, 1.5, 'x', 'depose', val => 12));
is_good('a term that began while the one before it was deposed',
	op(1.2, 1.5, 'x', 'depose', val => 12), grant(1.3, 1.6, 'b', 13), renew(1.7, 1.8, 'b', 13));
is_good('a term in a transaction that failed binds nobody',
	grant(1, 1.1, 'a', 10, out => 'refused'), grant(1.2, 1.3, 'b', 11));
is_bad('P4', 'a session that goes on', grant(1, 1.1, 'a', 10, kind => 'session', x => undef),
	grant(99, 100, 'b', 11));
is_good('a session whose connection ended',
	grant(1, 1.1, 'a', 10, kind => 'session', x => undef),
	{ k => 'gone', ses => 'a/1', t => 50 }, grant(50, 51, 'b', 11));
is_bad('P4', 'a session when another connection ended',
	grant(1, 1.1, 'a', 10, kind => 'session', x => undef),
	{ k => 'gone', ses => 'a/2', t => 50 }, grant(50, 51, 'b', 11));
is_bad('P4', 'a replaced term is renewed', grant(1, 1.1, 'a', 10), grant(3, 4, 'b', 11),
	renew(5, 6, 'a', 10));
is_bad('P4', 'a released term is renewed', grant(1, 1.1, 'a', 10), release(1.2, 1.3, 'a', 10),
	renew(1.4, 1.5, 'a', 10));
is_bad('P4', 'a released term is checked', grant(1, 1.1, 'a', 10), release(1.2, 1.3, 'a', 10),
	op(1.4, 1.5, 'a', 'check', ep => 10, val => 1));
is_bad('P4', 'a replaced term is released', grant(1, 1.1, 'a', 10), grant(3, 4, 'b', 11),
	release(5, 6, 'a', 10));
is_bad('P4', 'a leader is refused', grant(1, 1.1, 'a', 10),
	op(1.2, 1.3, 'a', 'renew', ep => 10, lead => 0));
is_good('or is late', grant(1, 1.1, 'a', 10), op(1.2, 2.3, 'a', 'renew', ep => 10, lead => 0));
is_bad('P4', 'the old primary, cut off, tells two leaders with a quorum',
	grant(1, 2, 'a', 10), lag(mode => 'sync'), renew(11, 11.1, 'a', 10, x => 5),
	grant(12, 13, 'b', 1000, srv => 'n2'));
is_good('which nobody can prevent without', grant(1, 2, 'a', 10), lag(),
	renew(11, 11.1, 'a', 10, x => 5), grant(12, 13, 'b', 1000, srv => 'n2'));

# P5
my $restart = { k => 'restart', srv => 'n1', t => 1.5, t1 => 5 };
is_bad('P5', 'a takeover right after a restart', grant(1, 1.1, 'a', 10), $restart,
	grant(5.1, 5.2, 'b', 11));
is_good('after a TTL', grant(1, 1.1, 'a', 10), $restart,
	op(5.1, 5.2, 'b', 'acquire', lead => undef), grant(6, 6.1, 'b', 11));
is_bad('P5', 'a TTL counts from the first look', grant(1, 1.1, 'a', 10), $restart,
	op(5.9, 5.95, 'b', 'acquire', lead => undef), grant(6, 6.1, 'b', 11));
is_good('nor was it yet when somebody who had been connected took a lease',
	grant(1, 1.1, 'a', 10), op(1.2, 1.3, 'b', 'acquire', lead => undef),
	{ k => 'restart', srv => 'n1', t => 1.5, t1 => 1.5, t2 => 1.6 }, grant(2.1, 2.2, 'b', 11));
is_bad('P5', 'somebody who had not been',
	grant(1, 1.1, 'a', 10), op(1.2, 1.3, 'b', 'acquire', lead => undef),
	{ k => 'restart', srv => 'n1', t => 1.5, t1 => 1.5, t2 => 1.6 },
	op(1.9, 1.95, 'b', 'acquire', lead => undef, ses => 'b/2'),
	grant(2.1, 2.2, 'b', 11, ses => 'b/2'));
is_good('a lease that had run out may be taken', grant(0.1, 0.2, 'a', 10), $restart,
	grant(5.1, 5.2, 'b', 11));
is_good('a term that was released may be', grant(1, 1.1, 'a', 10), release(1.2, 1.3, 'a', 10),
	$restart, grant(5.1, 5.2, 'b', 11));
is_bad('P5', 'the holder cannot go on', grant(1, 1.1, 'a', 10), $restart,
	op(5.1, 5.2, 'a', 'renew', ep => 10, lead => 0, ses => 'a/2'));
is_good('but must not be late', grant(1, 1.1, 'a', 10), $restart,
	op(5.1, 6.2, 'a', 'renew', ep => 10, lead => 0, ses => 'a/2'));
is_bad('P4 P5', 'a takeover right after a promotion', grant(4, 4.5, 'a', 10, x => 10, ttl => 10),
	lag(), grant(11, 12, 'b', 1000, srv => 'n2'));
is_good('of a term that the standby had not received', grant(6, 6.5, 'a', 10, x => 10, ttl => 10),
	lag(), grant(11, 12, 'b', 1000, srv => 'n2'));

# P6
is_bad('P6', 'a losing bid takes a transaction id',
	op(1, 2, 'a', 'acquire', lead => undef, xid => 5));
is_bad('P6', 'a losing bid keeps a lock', op(1, 2, 'a', 'acquire', lead => undef, locks => 1));
is_good('a losing bid', op(1, 2, 'a', 'acquire', lead => undef, locks => 0));
is_bad('P1', 'a losing bid is told an epoch', op(1, 2, 'a', 'acquire', lead => undef, answer => 5));

# P7
is_bad('P7', 'an acknowledged grant is lost', grant(1, 2, 'a', 10), finish());
is_good('one without an answer may be', op(1, undef, 'a', 'acquire'), finish());
is_good('one whose client was told and then lost too', op(1, undef, 'a', 'acquire'),
	{ k => 'told', id => "op$id", t0 => 1, t => 1.5, ep => 10, x => 1 }, finish());
is_bad('P7', 'a synchronous standby has not got it', grant(6, 7, 'a', 10), commit(10, 100),
	lag(mode => 'sync'), finish('n2'));
is_good('nor has a lagging one', grant(6, 7, 'a', 10), lag(), finish('n2'));
is_bad('P7', 'but it had this one', grant(3, 4, 'a', 10), lag(), finish('n2'));
is_bad('P7', 'an acknowledged release is lost', @takeover,
	release(6, 7, 'b', 11, xid => 99), term(10, 'a', 'expired'), term(11, 'b', 'released'),
	finish());

# Traces
my @granted = (grant(1, 2, 'a', 10), commit(10, 100), term(10, 'a'));
is_bad('trace', 'a refused write is there', @granted,
	wrote(2, 3, 'a', 10, 200, out => 'refused', st => 'LE001'), finish());
is_bad('trace', 'an acknowledged write is not', @granted, wrote(2, 3, 'a', 10), finish());
is_good('one without an answer is there or not', @granted, wrote(2, undef, 'a', 10, 200),
	wrote(2, undef, 'a', 10), finish());
is_bad('trace', 'a row of nobody', @granted,
	{ k => 'row', srv => 'n1', tab => 'w_set', id => 'who', el => 'l0', ep => 10, lsn => 200 }, finish());
is_bad('history trace', 'a refused grant was committed',
	grant(1, 2, 'a', 10, out => 'refused'), commit(10, 100), term(10, 'a'), finish());

# History
is_bad('history', 'a release of nobody', grant(1, 2, 'a', 10), commit(10, 100),
	term(10, 'a', 'released'), finish());
is_bad('history', 'a depose of nobody', grant(1, 2, 'a', 10), commit(10, 100),
	term(10, 'a', 'deposed'), finish());
is_bad('history', 'two terms at once', @takeover, term(10, 'a'), term(11, 'b'), finish());
is_bad('history', 'an older one goes on', @takeover, term(10, 'a'), term(11, 'b', 'expired'), finish());
is_bad('history', 'another holder', grant(1, 2, 'a', 10), commit(10, 100), term(10, 'b'), finish());
is_bad('history', 'a term of nobody', term(10, 'a'), finish());
is_good('a term of a bid without an answer', op(1, undef, 'a', 'acquire'), term(10, 'a'), finish());
is_bad('history', 'the same one twice', @granted, term(10, 'a', 'expired'), finish());
is_bad('history', 'a release that was acknowledged did not end it', @granted,
	release(2, 3, 'a', 10), finish());
is_bad('history', 'a lease ended with a session', grant(1, 2, 'a', 10), commit(10, 100),
	term(10, 'a', 'session_ended'), finish());

# What a run must have gone through
{
	my $checked = Check::check([
			@takeover, wrote(6, 7, 'a', 10, undef, out => 'refused', st => 'LE001'),
			op(2, undef, 'a', 'control', ep => 10, tab => 'control', id => 'late'),
			{ k => 'row', srv => 'n1', tab => 'control', id => 'late', el => 'l0', ep => 10, lsn => 301 },
			{ k => 'fault', kind => 'pause', t0 => 5, t1 => 8, confirmed => 1 },
			{ k => 'fault', kind => 'cut', t0 => 5, t1 => 8, confirmed => 0 },
			@terms, finish() ]);

	is_deeply($checked->{violations}, [], 'an unfenced row may be stale');
	is($checked->{counts}->{'control violations'}, 1, 'and is counted');
	is($checked->{counts}->{takeovers}, 1, 'so are takeovers');
	is($checked->{counts}->{'stale attempts'}, 1, 'and stale attempts');
	is($checked->{counts}->{'takeovers past an open transaction'}, 0, 'this one waited for nobody');
	is_deeply($checked->{faults},
		{
			pause => { tried => 1, confirmed => 1, rejections => 1 },
			cut => { tried => 1, confirmed => 0, rejections => 0 } },
		'and rejections, by faults that were seen');
	is_deeply([ $checked->vacuous(takeovers => 1) ], [], 'enough');
	is_deeply([ $checked->vacuous(takeovers => 2) ], ['only 1 takeovers, not 2'], 'not enough');
}

foreach my $case ([ 2.5, 1, 'which stayed open' ], [ 3.5, 0, 'which began later' ])
{
	my ($passed, $count, $name) = @$case;
	my $checked = Check::check([
			grant(1, 2, 'a', 10), grant(3, 4, 'b', 11),
			wrote(2.1, 6, 'a', 10, undef, out => 'refused', st => 'LE001', id => 'open'),
			{ k => 'passed', id => 'open', t => $passed } ]);

	is($checked->{counts}->{'takeovers past an open transaction'},
		$count, "a takeover past a fenced transaction $name");
}

done_testing();
