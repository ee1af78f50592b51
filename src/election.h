/*-------------------------------------------------------------------------
 *
 * election.h
 *	  Who leads, and how a term begins, goes on and ends.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_ELECTION_H
#define LE_ELECTION_H

#include "relations.h"
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
	bool		forgotten;		/* held, but a restart has lost its place */
	int64		now;
	int64		deadline;		/* of the row's term, if held or uncertain */
} LeView;

/*
 * How the election stands now, for a caller that holds no lock: it may have
 * changed when this returns.  rel is the open table of elections.
 */
extern void le_election_view(Relation rel, const char *election, LeView *view);

/* The same for a row that was read already. */
extern void le_election_judge(Oid rel, LeView *view);

/* An answer to acquire and renew */
typedef struct LeAnswer
{
	bool		is_leader;
	bool		granted;		/* leader by a term that this call began */
	bool		busy;			/* somebody else is at work on the election */
	int64		epoch;			/* if leader */
	int64		ttl;			/* of the current term, or of the bid */
	int64		left;			/* of the current lease; -1 if nobody's */
	char		leader[LE_NAME_MAX + 1];	/* empty if nobody */
} LeAnswer;

typedef struct LeBid
{
	const char *election;
	const char *holder;
	int64		ttl;
	Datum		metadata;		/* jsonb */
	bool		has_metadata;
} LeBid;

extern void le_election_acquire(const LeRelations *relations, const LeBid *bid,
								LeAnswer *answer);

/* Bids again and again until the clock shows "until", or it leads. */
extern void le_election_acquire_wait(const LeRelations *relations,
									 const LeBid *bid, int64 until,
									 LeAnswer *answer);

extern void le_election_renew(const LeRelations *relations, const LeKey *key,
							  LeAnswer *answer);

/* Renews every lease of that holder; calls tell for each that it leads. */
typedef void (*LeTell) (const char *election, int64 epoch, int64 left,
						void *arg);
extern void le_election_renew_all(const LeRelations *relations,
								  const char *holder, LeTell tell, void *arg);

extern bool le_election_check(const LeRelations *relations, const LeKey *key);

/* True if this call ended the term; error 55P03 if it cannot in time. */
extern bool le_election_release(const LeRelations *relations, const LeKey *key);

extern bool le_election_set_metadata(const LeRelations *relations,
									 const LeKey *key, Datum value,
									 bool isnull);

#endif							/* LE_ELECTION_H */
