/*-------------------------------------------------------------------------
 *
 * fence.h
 *	  What a fence needs of its table: a column for epochs, and its place among
 *	  the triggers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_FENCE_H
#define LE_FENCE_H

#include "utils/rel.h"
#include "utils/reltrigger.h"

/*
 * Does no enabled row trigger that could change the row fire after one of that
 * name, which the table has or is to get?
 */
extern bool le_fence_runs_last(const TriggerDesc *triggers, const char *name);

/* Error 55000 for one that does not. */
extern void le_fence_not_last(Relation rel);

/*
 * Has a table a column of that name in which a fence could store epochs?  Its
 * number; error 42703, 42804 or 42P10 if it has none.
 */
extern bool le_fence_has_epoch_column(Relation rel, const char *name);
extern int	le_fence_epoch_column(Relation rel, const char *name);

#endif							/* LE_FENCE_H */
