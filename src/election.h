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

typedef struct LeBid
{
	const char *election;
	const char *holder;
	char		kind;
	int64		ttl;			/* 0 for a session term without one */
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

#endif							/* LE_ELECTION_H */
