/*-------------------------------------------------------------------------
 *
 * store.h
 *	  Reads and writes the rows of the extension's tables.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_STORE_H
#define LE_STORE_H

#include "datatype/timestamp.h"
#include "storage/itemptr.h"
#include "utils/relcache.h"

#include "leader_election.h"

/* One election as its row has it */
typedef struct LeElection
{
	bool		exists;			/* all else is zero if not */
	bool		held;			/* does the row name a holder? */
	char		kind;			/* LE_KIND_..., of the newest term */
	int64		epoch;			/* of the newest term */
	int64		terms;			/* how many there were */
	int64		ttl;			/* of the newest term */
	TimestampTz acquired_at;	/* when the newest term was granted, or the
								 * mark raised; -infinity if never */
	char		election[LE_NAME_MAX + 1];
	char		holder[LE_NAME_MAX + 1];
	char		owner[NAMEDATALEN];
	ItemPointerData tid;		/* where the row stands */
} LeElection;

/*
 * Is the row's epoch somebody's token: of a term that was not ended, or the
 * mark of an external election?
 */
extern bool le_election_is_led(const LeElection *row);

/*
 * Reads the row of an election under the latest snapshot, whatever the
 * transaction's isolation level.  What this transaction did is seen.  rel is
 * open in any mode.  Decide on what is found only if the election's lock was
 * taken before.
 */
extern void le_store_read(Relation rel, const char *election,
						  LeElection *result);

/*
 * The next read of that row is likely to find it there, where it was read once;
 * nothing is lost if it has moved.
 */
extern void le_store_expect(Relation rel, const char *election,
							const ItemPointerData *tid);

/*
 * Inserts (if it does not exist) or replaces the row.  rel is open in
 * RowExclusiveLock or above; the caller holds the election's lock in
 * ExclusiveLock and read the row under it.  The next read sees it.
 */
extern void le_store_write(Relation rel, const LeElection *election);

/* Calls visit for every election, as of one latest snapshot; true goes on. */
typedef bool (*LeStoreVisit) (const LeElection *election, void *arg);
extern void le_store_scan(Relation rel, LeStoreVisit visit, void *arg);

/* The same for one election, if there is such; for all if the name is NULL. */
extern void le_store_scan_for(Relation rel, const char *election,
							  LeStoreVisit visit, void *arg);

/*
 * The metadata of one term, as a new value in the current context.  False if
 * there is none.
 */
extern bool le_store_get_metadata(Relation rel, const LeKey *key, Datum *value);

/*
 * Sets the metadata of one term, or removes it if the value is NULL.  rel is
 * open in RowExclusiveLock; the caller holds the election's lock in
 * ShareUpdateExclusiveLock or above.
 */
extern void le_store_set_metadata(Relation rel, const LeKey *key,
								  Datum value, bool isnull);

/*
 * Adds the term in the row to the history.  rel is open in RowExclusiveLock;
 * the caller holds the election's lock in ExclusiveLock.
 */
extern void le_store_add_history(Relation rel, const LeElection *election,
								 TimestampTz ended_at, const char *reason);

#endif							/* LE_STORE_H */
