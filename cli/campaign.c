/*-------------------------------------------------------------------------
 *
 * campaign.c
 *	  The side of "leaderctl run" that speaks with the database.
 *
 * One question is under way at a time.  What an answer says of time counts from
 * before the question was sent, so that the lease ends at the server later than
 * we think.  Nothing here waits.
 *
 * "may_hold" is set before a term is asked for and reset only when the server has
 * said that we hold none: whatever becomes of the answer, the lease will be given
 * back.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "campaign.h"
#include "clock.h"
#include "notify.h"
#include "report.h"

#define PATIENCE_MOST		(10 * CLOCK_SECOND)
#define BACKOFF_LEAST		(50 * CLOCK_MS)
#define BACKOFF_MOST		(5 * CLOCK_SECOND)
#define LOOK_LEAST			(200 * CLOCK_MS)
#define LOOK_MOST			(5 * CLOCK_SECOND)

/* The server's own limit is the same. */
#define RETRY_LEAST			(10 * CLOCK_MS)

/* How long a command may live on whose term has ended already */
#define OVERLAP_MOST		(5 * CLOCK_SECOND)

/* The end of a session is not notified. */
#define SESSION_LOOK		(500 * CLOCK_MS)

/* Spreads those whom one notification wakes. */
#define NOTIFIED_SPREAD		(20 * CLOCK_MS)

/* Whether it is to be renewed */
bool
campaign_keeps_lease(const Run *run)
{
	return run->phase == PHASE_LEADING || run->phase == PHASE_STOPPING;
}

/*
 * How long an answer may take.  A leader needs the time for another attempt, over
 * another connection, before it has to step down.
 */
static int64
patience(const Run *run)
{
	if (campaign_keeps_lease(run))
		return clock_within(run->ttl / 6, clock_earlier(run->ttl / 3, CLOCK_SECOND), PATIENCE_MOST);
	return clock_within(run->ttl / 3, CLOCK_SECOND, PATIENCE_MOST);
}

static int64
backoff(Run *run)
{
	int64		most = campaign_keeps_lease(run) ? clock_earlier(run->ttl / 12, CLOCK_SECOND) : BACKOFF_MOST;
	int64		pause = BACKOFF_LEAST << clock_earlier(run->failures, 10);

	run->failures++;
	return clock_jittered(clock_earlier(pause, most));
}

/* Once, as the same may go wrong again and again for a long time */
static void
report_trouble(Run *run, const char *event, const char *trouble)
{
	if (run->trouble && strcmp(run->trouble, trouble) == 0)
		return;
	free(run->trouble);
	run->trouble = strdup(trouble);
	report(REPORT_WARNING, event, "%s", trouble);
}

static void
trouble_is_over(Run *run)
{
	if (run->trouble)
		report(REPORT_INFO, "connected", "the server answers again");
	free(run->trouble);
	run->trouble = NULL;
	run->failures = 0;
}

/* From the beginning, with or without a connection, after a pause */
void
campaign_begin(Run *run, int64 pause)
{
	run->phase = PHASE_CAMPAIGNING;
	run->reason = REASON_NONE;
	run->free_since = CLOCK_NEVER;
	run->reconnect_at = clock_now();
	run->ask_at = run->stand_at = run->reconnect_at + pause;
	free(run->leader);
	run->leader = NULL;
}

/*--------------------------------------------------------------------------
 * Questions
 *--------------------------------------------------------------------------
 */

static bool
choose_question(const Run *run, Question *question)
{
	switch (run->phase)
	{
		case PHASE_CAMPAIGNING:
			*question = run->options->reluctant == 0 ||
				(run->free_since != CLOCK_NEVER &&
				 clock_now() - run->free_since >= run->options->reluctant) ?
				QUESTION_BID : QUESTION_WHETHER_FREE;
			return true;
		case PHASE_RELEASING:
			*question = QUESTION_RELEASE;
			return true;
		default:
			*question = QUESTION_RENEWAL;
			return campaign_keeps_lease(run);
	}
}

static void
ask_next(Run *run)
{
	int64		deadline;

	if (!choose_question(run, &run->question))
		return;
	run->asked_at = clock_now();

	/* We may have been stopped since the clock was looked at last. */
	if (run->question == QUESTION_RENEWAL && run->asked_at >= run->term_at)
		return;
	run->asking = true;
	deadline = run->asked_at + patience(run);
	switch (run->question)
	{
		case QUESTION_BID:
			run->may_hold = true;
			ask_for_bid(&run->connection, &run->candidacy, deadline);
			break;
		case QUESTION_RENEWAL:
			ask_for_renewal(&run->connection, &run->candidacy, run->epoch, deadline);
			break;
		case QUESTION_WHETHER_FREE:
			ask_whether_free(&run->connection, run->candidacy.election, deadline);
			break;
		case QUESTION_RELEASE:
			ask_for_release(&run->connection, &run->candidacy,
							clock_earlier(deadline, run->release_until));
			break;
	}
}

/* Asks sooner, but not before the time when we may stand again */
static void
ask_by(Run *run, int64 at)
{
	run->ask_at = clock_earlier(run->ask_at, at);
	if (run->phase == PHASE_CAMPAIGNING)
		run->ask_at = clock_later(run->ask_at, run->stand_at);
}

/* Connects or asks, if it is time to. */
void
campaign_act(Run *run)
{
	Connection *c = &run->connection;
	int64		now = clock_now();

	if (c->notified)
	{
		c->notified = false;
		ask_by(run, now + (run->phase == PHASE_CAMPAIGNING ? clock_jittered(NOTIFIED_SPREAD) : 0));
	}
	if (c->state == CONN_DOWN && now >= run->reconnect_at)
		connection_open(c, now + patience(run));
	else if (c->state == CONN_IDLE && now >= run->ask_at)
		ask_next(run);
}

/* When there will be something to do */
int64
campaign_next(const Run *run)
{
	Question	question;

	switch (run->connection.state)
	{
		case CONN_DOWN:
			return run->reconnect_at;
		case CONN_IDLE:
			return choose_question(run, &question) ? run->ask_at : CLOCK_NEVER;
		default:
			return run->connection.deadline;
	}
}

/*--------------------------------------------------------------------------
 * Answers
 *--------------------------------------------------------------------------
 */

/*
 * The TTL is in the answer: a third of it lies between stepping down and the end.
 * One half of that third is for the command to end by itself, the other one for
 * it to die.
 */
static void
set_deadlines(Run *run, const Answer *answer)
{
	int64		margin = answer->expires_in - answer->step_down_after;

	if (answer->step_down_after > 0)
		run->ttl = 3 * margin;
	run->term_at = run->asked_at + answer->step_down_after;
	run->kill_at = run->term_at + margin / 2;
	run->lease_end = run->asked_at + answer->expires_in;
}

static void
report_leader(Run *run, const char *leader)
{
	const char *now = leader ? leader : "";

	if (run->leader && strcmp(run->leader, now) == 0)
		return;
	free(run->leader);
	run->leader = strdup(now);
	if (leader)
	{
		report(REPORT_INFO, "waiting", "candidate; the leader is \"%s\"", leader);
		notify_supervisor("STATUS=candidate for \"%s\"; the leader is \"%s\"", run->candidacy.election, leader);
	}
	else
	{
		report(REPORT_INFO, "waiting", "candidate; there is no leader, but no term is granted now"
			   " (the election is paused or delayed, or another candidate is at it; see \"leaderctl status\")");
		notify_supervisor("STATUS=candidate for \"%s\"; no term is granted now", run->candidacy.election);
	}
}

/* What others lead already, the command may not go on with for long. */
static int64
overlap(const Run *run)
{
	int64		most = run->options->kill_after > 0 ? run->options->kill_after : OVERLAP_MOST;

	return clock_earlier(run->ttl / 6, most);
}

static bool
is_ours(const Run *run, const Answer *answer)
{
	return answer->leader && strcmp(answer->leader, run->candidacy.holder) == 0;
}

static void
ask_again(Run *run, const Answer *answer)
{
	run->ask_at = run->asked_at + clock_later(answer->retry_after, RETRY_LEAST);
}

static void
answer_lost_bid(Run *run, const Answer *answer)
{
	/* A grant of ours that is not certain yet may become so. */
	run->may_hold = is_ours(run, answer);
	run->bid_abandoned = false;
	run->free_since = CLOCK_NEVER;
	run_check_held(run);
	if (run->phase == PHASE_CAMPAIGNING)
	{
		ask_again(run, answer);
		if (run->candidacy.session)
			run->ask_at = clock_earlier(run->ask_at, clock_now() + clock_jittered(SESSION_LOOK));
		if (!run->may_hold)
			report_leader(run, answer->leader);
	}
}

static void
answer_bid(Run *run, const Answer *answer)
{
	if (!answer->is_leader)
	{
		answer_lost_bid(run, answer);
		return;
	}

	run->epoch = answer->epoch;
	run->bid_abandoned = false;
	set_deadlines(run, answer);

	/* A signal that came while we were winning comes first. */
	run_read_signals(run);
	if (run->phase != PHASE_CAMPAIGNING)
		run_release_known(run);
	else if (run->epoch == run->used_epoch)
	{
		/*
		 * The server took us for the leader all the time.  But what the last
		 * command has sent may be under way: the next one must not share its
		 * epoch.
		 */
		run_release(run);
	}
	else if (clock_now() < run->term_at)
	{
		ask_again(run, answer);
		run->used_epoch = run->epoch;
		run_start_command(run);
	}
	else
	{
		report(REPORT_WARNING, "slow", "leadership came too late to be used");
		run->reason = REASON_LATE;
		run_release(run);
	}
}

static void
answer_renewal(Run *run, const Answer *answer)
{
	if (!campaign_keeps_lease(run))
		return;
	ask_again(run, answer);
	if (answer->is_leader)
	{
		Order		order = {.kind = ORDER_EXTEND};

		trouble_is_over(run);
		set_deadlines(run, answer);
		order.term_at = run->term_at;
		order.kill_at = run->kill_at;
		keeper_order(&run->keeper, &order);
	}
	else if (is_ours(run, answer))
	{
		/* Nobody else can get it before the time that we were told. */
		report_trouble(run, "unconfirmed", "the server cannot confirm the lease now");
	}
	else if (answer->leader)
		run_lose(run, REASON_LOST, clock_now() + overlap(run),
				 "leadership lost: the leader is \"%s\"", answer->leader);
	else
		run_lose(run, REASON_LOST, clock_now() + overlap(run),
				 "leadership lost: the term was ended, as by a depose");
}

static void
answer_whether_free(Run *run, const PGresult *result)
{
	int64		now = clock_now();
	int64		most = clock_within(run->ttl / 3, LOOK_LEAST, LOOK_MOST);
	int64		expires_in;
	const char *leader;

	if (run->phase != PHASE_CAMPAIGNING)
		return;

	/* While we did not look somebody may have led. */
	if (run->asked_at - run->looked_at > 2 * LOOK_MOST)
		run->free_since = CLOCK_NEVER;
	run->looked_at = run->asked_at;
	if (!read_whether_free(result, &leader, &expires_in))
	{
		report_leader(run, leader);
		run->free_since = CLOCK_NEVER;
		run->ask_at = now + clock_within(expires_in, LOOK_LEAST, most);
		return;
	}
	if (run->free_since == CLOCK_NEVER)
	{
		run->free_since = run->asked_at;
		report(REPORT_INFO, "waiting", "candidate; there is no leader, and we are reluctant");
	}
	run->ask_at = clock_earlier(run->free_since + run->options->reluctant,
								now + most);
}

static void
answer_release(Run *run, const PGresult *result)
{
	bool		released = read_release(result);

	/* What we were not told of may be under way. */
	if (!released && run->epoch == 0)
	{
		run->ask_at = clock_now() + BID_LOOK;
		return;
	}
	if (released)
		report(REPORT_INFO, "released", "lease released");
	run->may_hold = false;
	run_finish(run);
}

static void
answered(Run *run)
{
	const PGresult *result = run->connection.result;
	Answer		answer;

	run->answered_before = true;
	if (run->question != QUESTION_RENEWAL)
		trouble_is_over(run);
	switch (run->question)
	{
		case QUESTION_BID:
			answer = read_answer(result);
			answer_bid(run, &answer);
			break;
		case QUESTION_RENEWAL:
			answer = read_answer(result);
			answer_renewal(run, &answer);
			break;
		case QUESTION_WHETHER_FREE:
			answer_whether_free(run, result);
			break;
		case QUESTION_RELEASE:
			answer_release(run, result);
			break;
	}
}

/*--------------------------------------------------------------------------
 * Failures
 *--------------------------------------------------------------------------
 */

/* What cannot be mended by waiting ends a campaign, but not a term. */
static bool
give_up(Run *run)
{
	if (!run->connection.permanent || run->phase != PHASE_CAMPAIGNING)
		return false;
	report(REPORT_ERROR, "failed", "%s", run->connection.error.data);
	run->reason = REASON_FAILED;
	run->exit_code = EXIT_FAILED;
	run_release(run);
	return true;
}

static void
lost_connection(Run *run)
{
	bool		ended_term = run->candidacy.session && run->may_hold;

	if (run->asking && run->question == QUESTION_BID)
		run->bid_abandoned = true;

	/* A session's term has ended with it. */
	if (ended_term)
		run->may_hold = run->bid_abandoned = false;
	run->free_since = CLOCK_NEVER;

	/* Where nobody has led before, another configuration is needed. */
	if (run->connected_before)
		run->connection.permanent = false;
	if (give_up(run))
		return;
	report_trouble(run, "disconnected", run->connection.error.data);
	run->reconnect_at = clock_now() + backoff(run);
	run->ask_at = run->reconnect_at;
	if (ended_term && campaign_keeps_lease(run))
		run_lose(run, REASON_LOST, clock_now() + overlap(run),
				 "leadership lost with the connection");
	run_check_held(run);
}

static void
refused(Run *run)
{
	/* A statement that has failed has granted nothing. */
	if (run->question == QUESTION_BID)
		run->may_hold = run->bid_abandoned;

	/* What was right once will be so again, as rights or limits may. */
	if (run->answered_before)
		run->connection.permanent = false;
	if (give_up(run))
		return;
	report_trouble(run, "refused", run->connection.error.data);

	/* What was a primary is a standby now: the primary may be elsewhere. */
	if (strcmp(run->connection.sqlstate, "25006") == 0)
	{
		connection_close(&run->connection);
		target_next_host(run->connection.target);
		run->reconnect_at = clock_now() + backoff(run);
		run->ask_at = run->reconnect_at;
	}
	else
		run->ask_at = clock_now() + backoff(run);
	run_check_held(run);
}

/* Takes in what came from the server, and what did not come in time. */
void
campaign_process(Run *run, short revents)
{
	switch (connection_process(&run->connection, revents))
	{
		case CONN_NOTHING:
			break;
		case CONN_MADE:
			if (!run->connected_before)
				notify_supervisor("READY=1");
			run->connected_before = true;
			ask_by(run, clock_now());
			break;
		case CONN_ANSWERED:
			run->asking = false;
			answered(run);
			break;
		case CONN_REFUSED:
			run->asking = false;
			refused(run);
			break;
		case CONN_LOST:
			lost_connection(run);
			run->asking = false;
			break;
	}
}
