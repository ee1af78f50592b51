#!/usr/bin/perl
#
# Several workers close the books of a ledger, one of them at a time, and the
# leader is frozen in the middle of its open transaction.
#
# Two acts: in the first the tables of the ledger are protected, in the second
# they are not; the workers, the freeze and all else are the same.  Then the
# books are checked.  Exits 1 if an invariant is violated or anything goes
# wrong.
#
# Expects the environment (PGHOST, PGPORT, PGUSER, PGDATABASE) to lead a
# superuser to an empty database with track_commit_timestamp on; demo/run
# provides it.
#
# Nothing here sleeps.  The workers tell through pipes what they do, and a step
# of the story is taken when the one before it was reported.

use strict;
use warnings FATAL => 'all';

use DBI;
use FindBin;
use IO::Select;
use IPC::Open2;
use JSON::PP;
use List::Util qw(all max);
use POSIX qw(:sys_wait_h);
use Term::ANSIColor qw(colored);
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

use constant {
	WORKERS   => 4,
	PERIODS   => 6,
	FREEZE_IN => 3,     # the period whose closing is interrupted
	TTL       => 2,     # seconds, as all times here
	GRACE     => 1,     # how long after the expiry a takeover may come
	PATIENCE  => 30,    # for one act
};

# The workers are nobody special: only the installation needs a superuser.
use constant WORKER_ROLE => 'bookkeeper';

my %ON = (
	joined   => sub { },
	bid      => \&on_bid,
	ready    => \&on_ready,
	closed   => \&on_closed,
	refused  => \&on_refused,
	released => \&on_released,
);

my $started_at = monotonic();
my %running;    # the workers by pid, to be ended whatever happens
my ($checks, $violations) = (0, 0);

$| = 1;
$SIG{PIPE} = 'IGNORE';    # of a worker that is gone the end of file tells
$SIG{$_} = sub { die "interrupted\n" }
  for qw(INT TERM HUP);

my $dbh;
my $done = eval { main(); 1 };
print STDERR "demo: $@" unless $done;
exit($done && !$violations ? 0 : 1);

# A frozen process does not react to anything milder.
END
{
	kill KILL => keys %running;
}

sub main
{
	$dbh = connect_as_superuser();
	prepare_server();

	headline('The ledger, its tables protected');
	columns();
	my $ledger = new_act('ledger', 'closing');
	protect_books($ledger);
	close_by_hand($ledger);
	play($ledger);

	headline('Control: the same workers and the same freeze, no protection');
	columns();
	my $twin = new_act('twin', 'closing_twin');
	play($twin);

	headline('Checks');
	check_takeover($ledger);
	check_fence($ledger);
	check_books($ledger);
	check_twin($twin);
	summary();
	return;
}

#
# The books
#

sub connect_as_superuser
{
	return DBI->connect(
		'dbi:Pg:',
		undef, undef,
		{
			AutoCommit => 1,
			RaiseError => 1,
			PrintError => 0
		});
}

sub prepare_server
{
	$dbh->do('SET client_min_messages = warning');
	$dbh->do('CREATE EXTENSION leader_election');
	$dbh->do('CREATE ROLE ' . WORKER_ROLE . ' LOGIN');

	my ($server, $extension) = $dbh->selectrow_array(<<'SQL');
SELECT current_setting('server_version'), extversion
  FROM pg_extension WHERE extname = 'leader_election'
SQL
	printf "leader_election %s, PostgreSQL %s; %d workers, ttl %d s\n",
	  $extension, $server =~ s/ .*//r, WORKERS, TTL;
	return;
}

sub new_act
{
	my ($schema, $election) = @_;
	create_books($schema);
	return {
		schema     => $schema,
		election   => $election,
		workers    => [],
		imported   => 0,                         # last period with bookings
		closed     => {},                        # periods
		give_up_at => monotonic() + PATIENCE,
	};
}

sub create_books
{
	my ($schema) = @_;
	my $role = WORKER_ROLE;
	$dbh->do(<<"SQL");
CREATE SCHEMA $schema
    CREATE TABLE entry (
        period int NOT NULL, account text NOT NULL, amount numeric NOT NULL)
    CREATE TABLE carry_forward (
        period int NOT NULL, account text NOT NULL, amount numeric NOT NULL,
        epoch bigint)
    CREATE TABLE period_close (
        period int NOT NULL, epoch bigint NOT NULL, worker text NOT NULL,
        total numeric NOT NULL)
    GRANT SELECT ON entry TO $role
    GRANT SELECT, INSERT ON carry_forward, period_close TO $role
SQL
	$dbh->do("GRANT USAGE ON SCHEMA $schema TO $role");
	return;
}

# Once by row, where the rows are stamped with the epoch, once by statement.
sub protect_books
{
	my ($act) = @_;
	$dbh->do('SELECT leader_protect(?::regclass, ?, ?)',
		undef, "$act->{schema}.carry_forward", $act->{election}, 'epoch');
	$dbh->do('SELECT leader_protect(?::regclass, ?)',
		undef, "$act->{schema}.period_close", $act->{election});
	tell_story(monotonic(), 'owner', undef,
		'leader_protect on carry_forward and period_close');
	return;
}

# To present no token at all must not be a way around the fence.
sub close_by_hand
{
	my ($act) = @_;
	$dbh->begin_work;
	$dbh->do('SET LOCAL ROLE ' . WORKER_ROLE);
	my $accepted = eval {
		$dbh->do(
			"INSERT INTO $act->{schema}.period_close VALUES (1, 0, '', 0)");
	};
	$act->{by_hand} = $accepted ? 'accepted' : $dbh->state;
	$dbh->rollback;
	tell_story(monotonic(), 'somebody', undef,
		"closes a period by hand, without a token: $act->{by_hand}");
	return;
}

# All bookings of a period come at once, and with them it is due for closing.
sub import_period
{
	my ($act) = @_;
	my $period = ++$act->{imported};
	$dbh->do(<<"SQL", undef, $period);
INSERT INTO $act->{schema}.entry (period, account, amount)
SELECT period, (ARRAY['cash', 'sales', 'stock', 'tax', 'wages'])[i % 5 + 1],
       round((137 + 500 * sin(13 * i + 78 * period))::numeric, 2)
  FROM generate_series(1, 200) AS i, CAST(? AS int) AS period
SQL
	send_word($_, 'look') for @{ $act->{workers} };
	return;
}

#
# The story
#

# Goes on until the last worker has left.
sub play
{
	my ($act) = @_;
	start_worker($act, "worker-$_") for 1 .. WORKERS;
	while (my @events = next_events($act))
	{
		for my $event (@events)
		{
			$ON{ $event->{what} }->($act, $event->{worker}, $event);
			advance($act);
		}
	}
	return;
}

sub advance
{
	my ($act) = @_;
	return if $act->{over};

	# The successor is through with the period that the frozen one is
	# still about to commit.
	resume($act)
	  if $act->{takeover} && !$act->{resumed} && $act->{closed}{ +FREEZE_IN };

	return unless may_go_on($act);
	if ($act->{imported} < PERIODS)
	{
		import_period($act);
	}
	else
	{
		$act->{over} = 1;
		dismiss($act);
	}
	return;
}

# The followers first, as otherwise one of them might still lead for a moment.
sub dismiss
{
	my ($act) = @_;
	my @leaving = grep { $_->{role} !~ /^leads/ } @{ $act->{workers} };
	@leaving = @{ $act->{workers} } unless @leaving;
	close $_->{to} for @leaving;
	return;
}

# The next period waits until the last one is closed, and until the frozen
# worker has found its place again.
sub may_go_on
{
	my ($act) = @_;
	return all { defined $_->{role} } @{ $act->{workers} } if !$act->{imported};
	return 0 if $act->{frozen} && !$act->{settled};
	return $act->{closed}{ $act->{imported} };
}

sub on_bid
{
	my ($act, $worker, $bid) = @_;
	if ($bid->{is_leader})
	{
		take_over($act, $bid)
		  if $act->{frozen} && !$act->{takeover} && $act->{frozen} != $worker;
		$worker->{lease} = $bid;
	}
	show_role($act, $worker, $bid);
	$act->{settled} = 1
	  if $act->{outcome} && $act->{frozen} == $worker;
	return;
}

# Most bids change nothing and are not shown.
sub show_role
{
	my ($act, $worker, $bid) = @_;
	my $role =
	    $bid->{is_leader} ? "leads $bid->{epoch}"
	  : $bid->{leader}    ? 'follows ' . $bid->{leader} =~ s{/.*}{}r
	  :                     $worker->{role} // '';    # an election under way
	my $known = $worker->{role} // '';
	$worker->{role} = $role;
	return if $role eq $known;

	my $takes_over = $act->{takeover} && $act->{takeover} == $bid;
	tell_story($bid->{at}, $worker->{name}, $bid->{epoch},
		  $takes_over       ? how_taken_over($act)
		: $bid->{is_leader} ? 'leads'
		:                     $role);
	return;
}

sub take_over
{
	my ($act, $bid) = @_;
	my $lease = $act->{lease};
	$act->{takeover} = $bid;
	$act->{after_renewal} = $bid->{at} - $lease->{asked};
	$act->{after_expiry} = $act->{after_renewal} - $lease->{expires_in};
	($act->{old_transaction}) = $dbh->selectrow_array(
		'SELECT state FROM pg_stat_activity WHERE pid = ?',
		undef, $act->{frozen}{backend});
	$act->{old_transaction} //= 'gone';
	return;
}

sub how_taken_over
{
	my ($act) = @_;
	return sprintf 'takes over after %.0f ms; %s is %s',
	  1000 * $act->{after_renewal}, $act->{frozen}{name},
	  $act->{old_transaction};
}

sub on_ready
{
	my ($act, $worker, $closing) = @_;
	if ($closing->{period} == FREEZE_IN && !$act->{frozen})
	{
		tell_story($closing->{at}, $worker->{name}, $closing->{epoch},
			"has posted period $closing->{period}, is about to COMMIT");
		freeze($act, $worker);
	}
	else
	{
		send_word($worker, 'go');
	}
	return;
}

sub freeze
{
	my ($act, $worker) = @_;
	kill STOP => $worker->{pid};
	waitpid $worker->{pid}, WUNTRACED;
	die "$worker->{name} did not stop\n"
	  unless WIFSTOPPED(${^CHILD_ERROR_NATIVE});
	$act->{frozen} = $worker;
	$act->{lease}  = $worker->{lease};
	tell_story(monotonic(), $worker->{name}, undef, 'SIGSTOP: frozen');
	return;
}

sub resume
{
	my ($act) = @_;
	my $worker = $act->{frozen};
	tell_story(monotonic(), $worker->{name}, undef, 'SIGCONT: resumed');
	send_word($worker, 'go');
	kill CONT => $worker->{pid};
	$act->{resumed} = 1;
	return;
}

sub on_closed
{
	my ($act, $worker, $closing) = @_;
	my $again = $act->{closed}{ $closing->{period} }++;
	note_outcome($act, $worker, 'accepted');
	tell_story($closing->{at}, $worker->{name}, $closing->{epoch},
		sprintf '%s period %d, carries %s forward',
		$again ? 'CLOSES ONCE MORE' : 'closes',
		$closing->{period}, money($closing->{total}));
	return;
}

sub on_refused
{
	my ($act, $worker, $refusal) = @_;
	note_outcome($act, $worker, $refusal->{state});
	tell_story($refusal->{at}, $worker->{name}, $refusal->{epoch},
		"COMMIT refused, $refusal->{state}: $refusal->{message}");
	return;
}

# What became of the first COMMIT after the freeze.
sub note_outcome
{
	my ($act, $worker, $outcome) = @_;
	$act->{outcome} //= $outcome
	  if $act->{resumed} && $act->{frozen} == $worker;
	return;
}

sub on_released
{
	my ($act, $worker, $release) = @_;
	tell_story($release->{at}, $worker->{name}, $release->{epoch},
		'releases');
	return;
}

#
# The workers
#

sub start_worker
{
	my ($act, $name) = @_;
	local $ENV{PGUSER} = WORKER_ROLE;
	my $pid = open2(
		my $from, my $to, $^X, "$FindBin::Bin/worker.pl", $name,
		$act->{schema}, $act->{election}, TTL . ' seconds');
	$running{$pid} = 1;
	push @{ $act->{workers} },
	  {
		name   => $name,
		pid    => $pid,
		from   => $from,
		to     => $to,
		unread => ''
	  };
	return;
}

sub send_word
{
	my ($worker, $word) = @_;
	syswrite $worker->{to}, "$word\n";
	return;
}

# Waits for something to happen and returns it in the order of time; nothing if
# all workers have left.
sub next_events
{
	my ($act) = @_;
	my @events;
	while (!@events && @{ $act->{workers} })
	{
		my %by_handle = map { $_->{from} => $_ } @{ $act->{workers} };
		my $select = IO::Select->new(map { $_->{from} } values %by_handle);
		my @ready =
		  $select->can_read(max(0, $act->{give_up_at} - monotonic()))
		  or die give_up($act);
		push @events, hear($act, $by_handle{$_}) for @ready;
	}
	@events = sort { $a->{at} <=> $b->{at} } @events;
	return @events;
}

sub hear
{
	my ($act, $worker) = @_;
	if (!sysread $worker->{from},
		$worker->{unread}, 65536, length $worker->{unread})
	{
		see_off($act, $worker);
		return;
	}
	my @events;
	while ($worker->{unread} =~ s/^(.*)\n//)
	{
		my $event = decode_json($1);
		$event->{worker} = $worker;
		$worker->{backend} //= $event->{backend};
		push @events, $event;
	}
	return @events;
}

sub see_off
{
	my ($act, $worker) = @_;
	waitpid $worker->{pid}, 0;
	delete $running{ $worker->{pid} };
	die "$worker->{name} ended before its time, wait status $?\n"
	  if $? || !$act->{over};
	$act->{workers} = [ grep { $_ != $worker } @{ $act->{workers} } ];
	dismiss($act);
	return;
}

sub give_up
{
	my ($act) = @_;
	my $missing =
	    $act->{over}     ? 'the end of all workers'
	  : $act->{settled}  ? 'the closing of the next period'
	  : $act->{resumed}  ? 'the outcome of the late COMMIT'
	  : $act->{takeover} ? 'the closing by the successor'
	  : $act->{frozen}   ? 'a takeover from the frozen leader'
	  : $act->{imported} ? 'the closing of the next period'
	  :                    'a bid of every worker';
	return sprintf "waited %d s in vain for %s\n", PATIENCE, $missing;
}

#
# The checks
#

sub check
{
	my ($holds, $text) = @_;
	$checks++;
	$violations++ unless $holds;
	printf "  %s  %s\n",
	  $holds ? paint('green', 'ok      ') : paint('bold red', 'VIOLATED'),
	  $text;
	return;
}

sub check_is
{
	my ($what, $is, $expected) = @_;
	my $holds = $is eq $expected;
	check($holds, "$what: $is" . ($holds ? '' : ", expected: $expected"));
	return;
}

# The lease began after it was asked for and was told before it was reported,
# so these bounds hold on the clock of the server, too.
sub check_takeover
{
	my ($act) = @_;
	my ($lease, $takeover) = ($act->{lease}, $act->{takeover});
	my $told_until = $lease->{at} + $lease->{expires_in};

	check($act->{after_expiry} >= 0,
		sprintf 'no takeover before the lease had run out: %.0f ms after',
		1000 * $act->{after_expiry});
	check($takeover->{at} <= $told_until + GRACE,
		sprintf 'takeover within ttl + %d s: %.0f ms after the renewal',
		GRACE, 1000 * $act->{after_renewal});
	check_is('it did not wait for the frozen transaction',
		$act->{old_transaction}, 'idle in transaction');
	check($takeover->{epoch} > $lease->{epoch},
		'the epoch of the new term is the higher one');
	return;
}

sub check_fence
{
	my ($act) = @_;
	check_is('a closing without a token was refused',
		$act->{by_hand}, 'LE002');
	check_is('the late COMMIT was refused', $act->{outcome}, 'LE001');
	return;
}

sub check_books
{
	my ($act) = @_;
	my ($closings, $periods) = closings($act);
	check($closings == PERIODS && $periods == PERIODS,
		"each period was closed once: $closings closings, $periods periods");
	my ($wrong, $carried, $booked) = balance($act);
	check(!$wrong,
		"all accounts balance: $booked booked, $carried carried");
	check(epochs_in_order($act),
		'the epochs of the closings grow in the order of their commits');
	check(!unstamped($act),
		'every posting is stamped with the epoch of its closing');
	return;
}

# What the fence is there for: without it the same story must end badly.
sub check_twin
{
	my ($act) = @_;
	my ($closings, $periods) = closings($act);
	check_is('control: the late COMMIT', $act->{outcome}, 'accepted');
	check($closings > $periods,
		"control: closed twice: $closings closings, $periods periods");
	check(!epochs_in_order($act),
		'control: an old epoch was committed after a new one');
	my ($wrong, $carried, $booked) = balance($act);
	check($wrong,
		"control: the books are wrong: $booked booked, $carried carried");
	return;
}

sub closings
{
	my ($act) = @_;
	return $dbh->selectrow_array(<<"SQL");
SELECT count(*), count(DISTINCT period) FROM $act->{schema}.period_close
SQL
}

# In how many cases an account does not carry out of a period what was booked
# up to then, and what was carried and booked in the end.
sub balance
{
	my ($act) = @_;
	my ($wrong, @totals) =
	  $dbh->selectrow_array(<<"SQL", undef, (PERIODS) x 2);
WITH booked AS (
    SELECT period, account,
           sum(sum(amount)) OVER (PARTITION BY account ORDER BY period) AS amount
      FROM $act->{schema}.entry GROUP BY period, account
), carried AS (
    SELECT period, account, sum(amount) AS amount
      FROM $act->{schema}.carry_forward GROUP BY period, account
)
SELECT count(*) FILTER (WHERE carried.amount IS DISTINCT FROM booked.amount),
       sum(carried.amount) FILTER (WHERE period = ?),
       sum(booked.amount) FILTER (WHERE period = ?)
  FROM booked FULL JOIN carried USING (period, account)
SQL
	return ($wrong, map { money($_) } @totals);
}

sub epochs_in_order
{
	my ($act) = @_;
	return $dbh->selectrow_array(<<"SQL");
SELECT bool_and(epoch >= previous)
  FROM (SELECT epoch, lag(epoch, 1, epoch) OVER (
                   ORDER BY pg_xact_commit_timestamp(xmin)) AS previous
          FROM $act->{schema}.period_close) AS closing
SQL
}

sub unstamped
{
	my ($act) = @_;
	return $dbh->selectrow_array(<<"SQL");
SELECT count(*) FROM $act->{schema}.carry_forward AS c
 WHERE NOT EXISTS (SELECT FROM $act->{schema}.period_close AS p
                    WHERE (p.period, p.epoch) = (c.period, c.epoch))
SQL
}

sub summary
{
	my $seconds = monotonic() - $started_at;
	if ($violations)
	{
		printf "%s\n",
		  paint('bold red', "$violations of $checks checks VIOLATED");
		return;
	}
	printf "%s in %.1f s: %s\n", paint('green', "all $checks checks hold"),
	  $seconds, 'the ledger is consistent, its unprotected twin is not';
	return;
}

#
# Output
#

sub headline
{
	my ($text) = @_;
	printf "\n%s\n", paint('bold', $text);
	return;
}

sub columns
{
	printf "%6s  %-9s  %15s\n", 'ms', 'who', 'epoch';
	return;
}

sub tell_story
{
	my ($at, $who, $epoch, $what) = @_;
	printf "%6.0f  %-9s  %15s  %s\n", 1000 * ($at - $started_at), $who,
	  $epoch // '', $what;
	return;
}

sub money
{
	my ($amount) = @_;
	return 'nothing' unless defined $amount;
	1 while $amount =~ s/^(-?\d+)(\d{3})/$1,$2/;
	return $amount;
}

sub paint
{
	my ($colour, $text) = @_;
	return -t STDOUT ? colored($text, $colour) : $text;
}

sub monotonic
{
	return clock_gettime(CLOCK_MONOTONIC);
}
