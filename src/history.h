/*-------------------------------------------------------------------------
 *
 * history.h
 *	  Deletes rows of the history.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_HISTORY_H
#define LE_HISTORY_H

#include "nodes/pg_list.h"

#include "datatype/timestamp.h"
#include "relations.h"

/*
 * Deletes the terms of those elections (a list of names) that ended before that
 * time, whatever snapshot the transaction has.  Returns how many there were.
 * The caller has checked who asks.  Error 55P03 if somebody else deletes them and
 * does not come to an end.
 */
extern int64 le_history_delete(const LeRelations *relations, List *elections,
							   TimestampTz ended_before);

#endif							/* LE_HISTORY_H */
