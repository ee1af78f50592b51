/*-------------------------------------------------------------------------
 *
 * fence.h
 *	  Where a fence stands among the triggers of its table.
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

#endif							/* LE_FENCE_H */
