/*-------------------------------------------------------------------------
 *
 * row.h
 *	  Finds, stores and deletes single rows of the extension's tables.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_ROW_H
#define LE_ROW_H

#include "executor/tuptable.h"
#include "utils/relcache.h"

/*
 * Puts the visible row with that key into the slot; false if there is none.
 * The key is the first column of the table.
 */
extern bool le_row_fetch(Relation rel, const char *key, TupleTableSlot *slot);

/*
 * Stores the virtual tuple in the slot as a new row, or in place of the row
 * at old_tid, with its index entries.  The next read sees it.
 */
extern void le_row_put(Relation rel, TupleTableSlot *slot, ItemPointer old_tid);

/* Deletes the row with that key, if there is one. */
extern void le_row_delete(Relation rel, const char *key);

#endif							/* LE_ROW_H */
