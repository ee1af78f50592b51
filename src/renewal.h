/*-------------------------------------------------------------------------
 *
 * renewal.h
 *	  Going on with a lease, and asking whether it goes on.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_RENEWAL_H
#define LE_RENEWAL_H

#include "answer.h"
#include "place.h"
#include "relations.h"

/*
 * Renews the lease of a term that the row was seen to name.  True if it is
 * led after it; info is what its place says then.
 */
extern bool le_renewal_try(const LeKey *key, LePlaceInfo *info);

/* Error 53400 if there is no room for a place. */
extern void le_renewal_make_place(const LeKey *key, const LeElection *row,
								  int64 lock_delay, LePlaceState state,
								  int64 deadline);

/* What leader_renew, leader_check and leader_renew_all do. */
extern void le_renewal_renew(const LeKey *key, LeAnswer *answer);
extern bool le_renewal_check(const LeKey *key);
typedef void (*LeTell) (const char *election, int64 epoch, int64 left,
						void *arg);
extern void le_renewal_renew_all(Oid state, const char *holder, LeTell tell,
								 void *arg);

#endif							/* LE_RENEWAL_H */
