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
 * Deletes the terms of those elections, a sorted list of names, that ended before
 * that time, whatever snapshot the transaction has.  Waits for nobody: what
 * another transaction is deleting is left to it, and then *busy is set.  Returns
 * how many were deleted.  rel is open in RowExclusiveLock; the caller has checked
 * who asks.
 */
extern int64 le_history_delete(Relation rel, List *elections,
							   TimestampTz ended_before, bool *busy);

#endif							/* LE_HISTORY_H */
