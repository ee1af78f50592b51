/*-------------------------------------------------------------------------
 *
 * change.h
 *	  What the current transaction has done to elections.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_CHANGE_H
#define LE_CHANGE_H

#include "access/xact.h"

#include "leader_election.h"

typedef enum LeChangeKind
{
	LE_CHANGE_BEGUN,			/* granted a term, its place is pending */
	LE_CHANGE_ENDED,			/* ended a term */
	LE_CHANGE_REPLACED,			/* replaced a term that had run out */
	LE_CHANGE_RAISED,			/* raised the mark of an external election */
	LE_CHANGE_DROPPED,			/* dropped the election */
	LE_CHANGE_OTHER				/* none of these, but locks the election */
} LeChangeKind;

/* For _PG_init. */
extern void le_change_init(void);

/*
 * Notes what was done; the election's lock is held until the transaction
 * ends.  The backend is ended (57P01) if the transaction has not come to its
 * commit when the clock shows "until".
 */
extern void le_change_note(LeChangeKind kind, const LeKey *key, int64 until);

/* The same for one that creates the election. */
extern void le_change_created(LeChangeKind kind, const LeKey *key,
							  int64 until);

/*
 * The same for a change of what is configured, which the place of the term, if
 * it has one, is told at commit: another owner unless NULL, another lock delay
 * unless negative.
 */
extern void le_change_configured(const LeKey *key, const char *owner,
								 int64 lock_delay, int64 until);

/* How long a transaction may sit on an election that it does not acquire */
#define LE_CHANGE_LIMIT		(5 * LE_SECOND)
/* ... and on one that it acquires, if the lease is longer */
#define LE_CHANGE_LIMIT_ACQUIRE	(60 * LE_SECOND)

/* Did this transaction begin or end that term? */
extern bool le_change_begun(const LeKey *key);
extern bool le_change_ended(const LeKey *key);

/* Does this transaction hold an election's lock above RowShareLock? */
extern bool le_change_any(void);

/* Called by the transaction callbacks. */
extern void le_change_pre_commit(void);
extern void le_change_commit(void);
extern void le_change_abort(void);
extern void le_change_subxact_commit(void);
extern void le_change_subxact_abort(void);

#endif							/* LE_CHANGE_H */
