#!/usr/bin/perl
#
# One of several workers, of which one at a time closes the books.
#
#   worker.pl NAME SCHEMA ELECTION TTL
#
# Written as an application would write it: bid, work while leader, sleep for
# retry_after, bid again.  It knows nothing of being frozen.  Only its two ends
# are made for the demo: what happens goes to STDOUT, one JSON object a line,
# and STDIN brings one word a line:
#
#   look   there may be a period to close: do not sleep on
#   go     the closing that was just reported may be committed
#
# The end of STDIN means: give up leadership and leave.

use strict;
use warnings FATAL => 'all';

use DBI;
use IO::Select;
use JSON::PP;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

use constant STALE_EPOCH => 'LE001';

my $BID = <<'SQL';
SELECT is_leader, epoch, leader,
       extract(epoch FROM expires_in) AS expires_in,
       extract(epoch FROM step_down_after) AS step_down_after,
       extract(epoch FROM retry_after) AS retry_after
  FROM leader_acquire(?, ?, ttl => ?::interval)
SQL

my $NEXT_PERIOD = <<'SQL';
SELECT min(period) FROM entry
 WHERE period > (SELECT coalesce(max(period), 0) FROM period_close)
SQL

# An account carries forward what was carried into the period and what was
# booked in it.
#
# Only INSERTs, and no unique key on what they insert: whoever takes over from
# a frozen worker must not have to wait for a lock of its open transaction.
# That a period is not closed twice is left to the fence.
my $CLOSE = <<'SQL';
WITH posted AS (
    SELECT account, amount FROM entry WHERE period = $1
    UNION ALL
    SELECT account, amount FROM carry_forward WHERE period = $1 - 1
), carried AS (
    INSERT INTO carry_forward (period, account, amount)
    SELECT $1, account, sum(amount) FROM posted GROUP BY account
    RETURNING amount
)
INSERT INTO period_close (period, epoch, worker, total)
SELECT $1, $2, $3, sum(amount) FROM carried
RETURNING total
SQL

die "usage: worker.pl NAME SCHEMA ELECTION TTL\n" unless @ARGV == 4;
my ($name, $schema, $election, $ttl) = @ARGV;

# Two processes must never share a holder name, not even a worker and its own
# restarted self.
my $holder = "$name/$$";

my $stdin  = IO::Select->new(\*STDIN);
my $unread = '';
my $dbh    = connect_to_ledger();

report('joined', backend => $dbh->{pg_pid});
leave(work());
exit 0;

sub connect_to_ledger
{
	my $connection = DBI->connect(
		'dbi:Pg:',
		undef, undef,
		{
			AutoCommit => 1,
			RaiseError => 1,
			PrintError => 0
		});
	$connection->do(q{SELECT set_config('search_path', ?, false)},
		undef, "$schema, public");
	return $connection;
}

# Returns the last bid.
sub work
{
	my $bid;
	do
	{
		$bid = bid();
		close_periods($bid) if $bid->{is_leader};
	} while (wait_for_word($bid->{retry_after}));
	return $bid;
}

# The time is taken before the request is sent, so that this side never
# believes in a longer lease than the server gave.
sub bid
{
	my $asked = monotonic();
	my $bid = $dbh->selectrow_hashref($dbh->prepare_cached($BID),
		undef, $election, $holder, $ttl);
	$bid->{asked} = $asked;
	report('bid', %$bid);
	return $bid;
}

# Closes what there is to close, as long as the lease is good for it.
sub close_periods
{
	my ($bid) = @_;
	my $step_down_at = $bid->{asked} + $bid->{step_down_after};
	my $more = 1;

	while ($more && monotonic() < $step_down_at)
	{
		$more = eval { close_next_period($bid->{epoch}) };
		next if defined $more;
		refused($@, $bid->{epoch});
		$bid->{retry_after} = 0;    # who leads now?
	}
	return;
}

# Returns whether there was a period to close.
#
# The lease is not looked at once more before the COMMIT.  That would not help:
# a process can be paused between its last look and the COMMIT, too.  So it is
# the database that looks.
sub close_next_period
{
	my ($epoch) = @_;

	$dbh->begin_work;
	my ($period) = $dbh->selectrow_array($NEXT_PERIOD);
	if (!defined $period)
	{
		$dbh->rollback;
		return 0;
	}

	# Presents the token; the tables that are written decide whether it is
	# looked at.
	$dbh->do(q{SELECT set_config('leader_election.fence', ?, true)},
		undef, "$election=$epoch");
	my ($total) =
	  $dbh->selectrow_array($CLOSE, undef, $period, $epoch, $name);

	# Somebody else is asked in the middle of the transaction, which is
	# where real workers lose their time.
	my %closing = (period => $period, epoch => $epoch, total => $total);
	report('ready', %closing);
	wait_for_go();
	$dbh->commit;
	report('closed', %closing);
	return 1;
}

# To be refused by the fence is part of the job.  Any other error is the end
# of this worker.
sub refused
{
	my ($error, $epoch) = @_;
	my $state = $dbh->state;
	die $error if $state ne STALE_EPOCH;

	my ($message) = $dbh->errstr =~ /^(?:ERROR:\s+)?(.*)/;
	$dbh->rollback unless $dbh->{AutoCommit};
	report(
		'refused',
		epoch   => $epoch,
		state   => $state,
		message => $message);
	return;
}

sub leave
{
	my ($bid) = @_;
	if ($bid->{is_leader})
	{
		my ($released) = $dbh->selectrow_array('SELECT leader_release(?, ?)',
			undef, $election, $bid->{epoch});
		report('released', epoch => $bid->{epoch}) if $released;
	}
	$dbh->disconnect;
	return;
}

sub report
{
	my ($what, %more) = @_;
	my $line = encode_json({ what => $what, at => monotonic(), %more });
	syswrite STDOUT, "$line\n";
	return;
}

# Without a "go" the transaction ends with the connection.
sub wait_for_go
{
	my $word = '';
	while ($word ne 'go')
	{
		$word = wait_for_word(undef) or exit 0;
	}
	return;
}

# Waits for a word for at most so many seconds.  Returns it, or "nothing" if
# none came in time, or undef at the end of STDIN.
sub wait_for_word
{
	my ($seconds) = @_;
	while (1)
	{
		return $1 if $unread =~ s/^(.*)\n//;
		return 'nothing' unless $stdin->can_read($seconds);
		sysread STDIN, $unread, 4096, length $unread or return;
	}
}

sub monotonic
{
	return clock_gettime(CLOCK_MONOTONIC);
}
