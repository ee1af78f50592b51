/*-------------------------------------------------------------------------
 *
 * external.h
 *	  Elections whose tokens come from elsewhere.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_EXTERNAL_H
#define LE_EXTERNAL_H

#include "store.h"

/*
 * May the current user raise the mark of the election in that row to that
 * token?  If that comes from the setting, the user of the session must be
 * allowed to as well.  Errors: 42501 without the rights of a holder, 25006 in a
 * read-only transaction, 22003 for a token above what an epoch can be.
 */
extern void le_external_check_raise(const LeKey *key, const LeElection *row,
									bool from_setting);

/*
 * Raises the mark, unless it is as high by now, and keeps the election locked.
 * To be called at commit.  Error 55P03 if it cannot in time.
 */
extern void le_external_raise(const LeKey *key);

#endif							/* LE_EXTERNAL_H */
