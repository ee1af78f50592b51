/*-------------------------------------------------------------------------
 *
 * view.h
 *	  How an election stands: its row and the place of its term together.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_VIEW_H
#define LE_VIEW_H

#include "store.h"

/* How an election stands */
typedef enum LeStanding
{
	LE_STANDING_FREE,			/* no term, or it was ended */
	LE_STANDING_LAPSED,			/* ran out, not taken over yet */
	LE_STANDING_HELD,			/* led */
	LE_STANDING_UNCERTAIN		/* held, but not led before its grant or its
								 * end is decided or confirmed */
} LeStanding;

typedef struct LeView
{
	LeElection	row;
	LeStanding	standing;
	bool		unconfirmed;	/* uncertain, as standbys have not got it */
	bool		session_ended;	/* lapsed, as its session is gone */
	bool		forgotten;		/* held, but a restart has lost its place */
	int			pid;			/* of the session that holds it, if known */
	int64		now;
	int64		deadline;		/* of the row's term, if held or uncertain */
} LeView;

/*
 * How the election stands now, for a caller that holds no lock: it may have
 * changed when this returns.  rel is the open table of elections.
 */
extern void le_view_read(Relation rel, const char *election, LeView *view);

/* The same for a row that was read already. */
extern void le_view_judge(Oid rel, LeView *view);

/* The same for one who only watches. */
extern void le_view_watch(Oid rel, LeView *view);

/*
 * How the term ended, if it has lapsed: the reason as the history has it; NULL
 * if it has not.  And when, as far as that is known, or would if it ended now,
 * which the wall clock shows; never before it began.
 */
extern const char *le_view_end(const LeView *view, TimestampTz now,
							   TimestampTz *ended_at);

/* Is the row's term, led or not, in the way of another candidate? */
extern bool le_view_is_held(const LeView *view);

#endif							/* LE_VIEW_H */
