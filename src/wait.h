/*-------------------------------------------------------------------------
 *
 * wait.h
 *	  A bid that waits until it leads or its time is over.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_WAIT_H
#define LE_WAIT_H

#include "election.h"

/* Bids again and again until the clock shows "until", or it leads. */
extern void le_wait_acquire(const LeRelations *relations, const LeBid *bid,
							int64 until, LeAnswer *answer);

#endif							/* LE_WAIT_H */
