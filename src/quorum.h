/*-------------------------------------------------------------------------
 *
 * quorum.h
 *	  Until when the synchronous standbys vouch for this server.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_QUORUM_H
#define LE_QUORUM_H

#include "access/xlogdefs.h"

/*
 * The point in time at which this server was last known to have its quorum of
 * standbys behind it: now if it needs none.  The caller holds the lock of the
 * table of places in any mode.
 */
extern int64 le_quorum_vouched(int64 now);

/* Should whoever renews a lease with that TTL ask again?  Lock as above. */
extern bool le_quorum_due(int64 ttl, int64 now);

/*
 * Asks, if it is still due, and returns without waiting for an answer.  The
 * caller holds no lock of ours.
 */
extern void le_quorum_ask(int64 ttl);

/*
 * The first time of asking in an incarnation, which forgets all earlier ones.
 * Returns the position that standbys must have acknowledged to have all that
 * was written before.  What was asked is to be flushed.  The table's lock is
 * held in exclusive mode, as it is for the next one.
 */
extern XLogRecPtr le_quorum_begin(int64 now);

/* Standbys have acknowledged something that was begun at that time. */
extern void le_quorum_acknowledged(int64 begun);

#endif							/* LE_QUORUM_H */
