/*-------------------------------------------------------------------------
 *
 * election.h
 *	  How a term begins and ends.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_ELECTION_H
#define LE_ELECTION_H

#include "answer.h"
#include "relations.h"
#include "view.h"

typedef struct LeBid
{
	const char *election;
	const char *holder;
	char		kind;
	int64		ttl;			/* 0 if none was given */
	Datum		metadata;		/* jsonb */
	bool		has_metadata;
} LeBid;

extern void le_election_acquire(const LeRelations *relations, const LeBid *bid,
								LeAnswer *answer);

/* True if this call ended the term; error 55P03 if it cannot in time. */
extern bool le_election_release(const LeRelations *relations, const LeKey *key);

extern bool le_election_set_metadata(const LeRelations *relations,
									 const LeKey *key, Datum value,
									 bool isnull);

/*
 * For all who begin or end something with an election.
 */

/*
 * Errors: 42501 without the rights on it, or to create it if it does not exist;
 * 53400 for one too many.  rel is the open table of elections.
 */
extern void le_election_require(const LeRelations *relations, Relation rel,
								const char *election, const LeElection *row);

/*
 * Takes what a change of epoch or holder needs, and closes the place of the
 * term that has lapsed, if the row names one.  False if that has not, or
 * somebody is at work on the election; then nothing was taken.  The caller
 * holds the election's lock in ShareUpdateExclusiveLock, and read the row
 * under it.
 */
extern bool le_election_lock_free(Oid state, const char *election,
								  const LeElection *row);

/*
 * Writes the history of the term that the row names, which ends now by the wall
 * clock, or has lapsed before; otherwise it ends for that reason.  The row is
 * left to the caller.
 */
extern void le_election_end(const LeRelations *relations, const LeView *view,
							TimestampTz now, const char *reason);

/* Error 55P03: the election's lock could not be taken in time. */
extern void le_election_cannot_lock(const char *election);

#endif							/* LE_ELECTION_H */
