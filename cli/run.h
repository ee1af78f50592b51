/*-------------------------------------------------------------------------
 *
 * run.h
 *	  leaderctl run: a command that runs while we lead.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEADERCTL_RUN_H
#define LEADERCTL_RUN_H

#include "connection.h"
#include "keeper.h"
#include "questions.h"

/* As the command line says; durations in microseconds, 0 for none. */
typedef struct RunOptions
{
	const char *election;
	const char *name;			/* what the holder's name begins with */
	const char *metadata;
	int64		ttl;
	bool		session;
	bool		exit_on_loss;
	int64		timeout;
	int64		watchdog;
	int64		reluctant;
	int64		kill_after;
	char	  **command;
} RunOptions;

typedef enum
{
	PHASE_CAMPAIGNING,			/* there is no command; we want to lead */
	PHASE_LEADING,				/* the command runs */
	PHASE_STOPPING,				/* the command has been told to end; the lease
								 * is kept for it */
	PHASE_ENDING,				/* the command ends, or has, and the lease is
								 * not renewed any more */
	PHASE_RELEASING,			/* there is no command; the lease is given
								 * back */
	PHASE_OVER
} Phase;

/* Why the command, or the campaign, ends */
typedef enum
{
	REASON_NONE,
	REASON_COMMAND,				/* it has ended, or could not be started */
	REASON_SIGNAL,				/* we were told to */
	REASON_LATE,				/* leadership came too late to be used */
	REASON_LOST,				/* leadership */
	REASON_WATCHDOG,			/* the command was silent for too long */
	REASON_TIMEOUT,				/* not leader in time */
	REASON_FAILED				/* nothing that trying again would mend */
} Reason;

typedef enum
{
	QUESTION_BID,
	QUESTION_RENEWAL,
	QUESTION_WHETHER_FREE,
	QUESTION_RELEASE
} Question;

typedef struct Run
{
	const RunOptions *options;
	Candidacy	candidacy;
	Phase		phase;
	Reason		reason;
	int			exit_code;

	/* The database */
	Connection	connection;
	bool		connected_before;
	bool		answered_before;
	int			failures;		/* in a row */
	int64		reconnect_at;
	bool		asking;
	Question	question;		/* under way, if any is, or the last one */
	int64		asked_at;
	int64		ask_at;			/* the next one */
	int64		stand_at;		/* no term is asked for before */
	int64		free_since;		/* the election was seen free, or CLOCK_NEVER */
	int64		looked_at;		/* the last time */
	char	   *leader;			/* the other one that was reported last */
	char	   *trouble;		/* likewise */

	/* The lease.  Grants that we were not told of are possible, too. */
	bool		may_hold;
	bool		bid_abandoned;	/* and may be granted still */
	int64		epoch;			/* 0 if it is not known */
	int64		used_epoch;		/* the last one that a command has had */
	int64		ttl;			/* a guess before the first term */
	int64		term_at;		/* the command has to be told to end */
	int64		kill_at;		/* the command has to be dead */
	int64		lease_end;		/* not before this, at the server */
	int64		release_until;	/* we try */

	/* The command, and who keeps it */
	Inheritance inheritance;
	Keeper		keeper;
	bool		keeper_lost;
	int64		overdue_since;	/* the command was seen alive, but ought to be
								 * dead */
	pid_t		command;		/* 0 if there is none */
	int			notify;			/* where it says that it is alive, or -1 */
	int64		silent_at;		/* it has been silent for too long */
	int64		stopped_at;		/* when we were told to end, or CLOCK_NEVER */
	int64		kill_command_at;	/* it was told to end long ago */

	int			signals;
	int			timer;
	int64		timeout_at;
	int64		supervisor_interval;
	int64		supervisor_at;	/* it wants to hear from us */
} Run;

extern int	run_command(const RunOptions *options, Target *target);

/* For campaign.c */
extern void run_start_command(Run *run);
extern void run_lose(Run *run, Reason reason, int64 kill_at, const char *format,...)
			pg_attribute_printf(4, 5);
extern void run_release(Run *run);
extern void run_release_known(Run *run);
extern void run_check_held(Run *run);
extern void run_finish(Run *run);
extern void run_read_signals(Run *run);

#endif							/* LEADERCTL_RUN_H */
