/*-------------------------------------------------------------------------
 *
 * history.h
 *	  Deletes rows of the history.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_HISTORY_H
#define LE_HISTORY_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "utils/relcache.h"

/*
 * Both delete below the executor, whatever snapshot the transaction has, and
 * wait for nobody: what another transaction is deleting is left to it.  rel
 * is open in RowExclusiveLock; the caller has checked who asks.
 */

/*
 * The terms of those elections, a sorted list of names, that ended before that
 * time.  Returns how many were deleted.
 */
extern int64 le_history_prune(Relation rel, List *elections,
							  TimestampTz ended_before);

/* All terms of one election.  False if another transaction deletes some. */
extern bool le_history_forget(Relation rel, const char *election);

#endif							/* LE_HISTORY_H */
