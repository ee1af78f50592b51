/*-------------------------------------------------------------------------
 *
 * questions.h
 *	  What leaderctl asks the server for, and the answers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEADERCTL_QUESTIONS_H
#define LEADERCTL_QUESTIONS_H

#include "clock.h"
#include "connection.h"

/* How long we try to give a lease back */
#define RELEASE_TIME	(10 * CLOCK_SECOND)

/* How long a bid whose answer never came may be under way at the server */
#define BID_TIME		(2 * CLOCK_SECOND)

/* How often we look meanwhile whether it was granted */
#define BID_LOOK		(200 * CLOCK_MS)

/* What is asked for in an election; it does not change while we run. */
typedef struct Candidacy
{
	const char *election;
	const char *holder;			/* unique to this process */
	const char *ttl;			/* an interval, or NULL for the server's
								 * choice */
	const char *metadata;		/* JSON, or NULL */
	bool		session;
} Candidacy;

/* Durations in microseconds, -1 for NULL; the name lives as long as the result. */
typedef struct Answer
{
	bool		is_leader;
	int64		epoch;
	const char *leader;			/* or NULL */
	int64		expires_in;
	int64		step_down_after;
	int64		retry_after;
} Answer;

extern void ask(Connection *c, const char *sql, int n, const char *const *values,
				int64 deadline);

extern void ask_for_bid(Connection *c, const Candidacy *candidacy, int64 deadline);
extern void ask_for_renewal(Connection *c, const Candidacy *candidacy, int64 epoch,
							int64 deadline);
extern Answer read_answer(const PGresult *result);

extern void ask_whether_free(Connection *c, const char *election, int64 deadline);
extern bool read_whether_free(const PGresult *result, const char **leader,
							  int64 *expires_in);

extern void ask_for_release(Connection *c, const Candidacy *candidacy, int64 deadline);
extern bool read_release(const PGresult *result);

#endif							/* LEADERCTL_QUESTIONS_H */
