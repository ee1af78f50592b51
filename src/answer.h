/*-------------------------------------------------------------------------
 *
 * answer.h
 *	  What a candidate is told.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_ANSWER_H
#define LE_ANSWER_H

#include "fmgr.h"

#include "leader_election.h"
#include "view.h"

/* An answer to acquire and renew */
typedef struct LeAnswer
{
	bool		is_leader;
	bool		granted;		/* leader by a term that this call began */
	bool		busy;			/* somebody else is at work on the election */
	bool		session;		/* led by a session, whose end is not timed */
	int64		epoch;			/* if leader */
	int64		ttl;			/* of the current term, or of the bid */
	int64		left;			/* of the current lease; -1 if nobody's,
								 * LE_FOREVER if it does not end by time */
	int64		kept_back;		/* free, and yet not to be had for so long */
	char		leader[LE_NAME_MAX + 1];	/* empty if nobody */
} LeAnswer;

/* It leads by that epoch. */
extern void le_answer_leader(LeAnswer *answer, int64 epoch, const char *holder,
							 int64 ttl, int64 left);

/* It does not; how the election stands is said, or the ttl asked for. */
extern void le_answer_other(LeAnswer *answer, const LeView *view, int64 ttl);

/* It does not, another leads; ttl is the one to hurry by. */
extern void le_answer_held(LeAnswer *answer, const char *leader, char kind,
						   int64 ttl, int64 left);

/* The answer as the row that the SQL function returns. */
extern Datum le_answer_datum(FunctionCallInfo fcinfo, const LeAnswer *answer);

#endif							/* LE_ANSWER_H */
