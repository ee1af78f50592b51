/*-------------------------------------------------------------------------
 *
 * epoch.h
 *	  Draws epochs: fencing tokens that never repeat and only grow.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_EPOCH_H
#define LE_EPOCH_H

#include "relations.h"

/*
 * A new epoch, higher than any that this history of the database has drawn
 * and than row_epoch.  It is used up whatever becomes of the transaction.
 */
extern int64 le_epoch_draw(const LeRelations *relations, int64 row_epoch);

/*
 * Makes the epoch that was drawn last survive a crash.  If it was reserved some
 * time ago, that is so already.
 */
extern void le_epoch_flush(void);

#endif							/* LE_EPOCH_H */
