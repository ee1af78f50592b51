/*-------------------------------------------------------------------------
 *
 * lock.h
 *	  The heavyweight lock of an election.
 *
 * Three modes are used:
 *	  RowShareLock				a fenced commit, a reclaiming renewal
 *	  ShareUpdateExclusiveLock	a bid, metadata, configuration, to depose or drop
 *	  ExclusiveLock				a change of epoch or holder
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_LOCK_H
#define LE_LOCK_H

#include "storage/lock.h"

/* What a lock is asked for */
typedef struct LeLock
{
	LOCKTAG		tag;
	uint64		order;			/* locks of many elections are taken in it */
} LeLock;

/* The lock of an election, whose row stands or would stand in table rel. */
extern LeLock le_lock_election(Oid rel, const char *election);

/* One lock for all elections of the database, see lock.c. */
extern LeLock le_lock_database(Oid rel);

/* The lock on the counter of epochs. */
extern LeLock le_lock_counter(Oid rel);

/* Takes the lock if that needs no wait. */
extern bool le_lock_try(const LeLock *lock, LOCKMODE mode);

/*
 * Waits in the queue, for less than deadlock_timeout.  False if that was too
 * short.  Not to be called while a transaction commits.
 */
extern bool le_lock_queue(const LeLock *lock, LOCKMODE mode);

/*
 * Tries again and again until the clock shows "until"; never queues.  Returns
 * NULL when the lock was taken, else why it was not: a sentence.  That is said
 * early if one who holds the lock waits for us.
 */
extern const char *le_lock_poll(const LeLock *lock, LOCKMODE mode,
								int64 until);

/*
 * The same for both locks that a change needs, while a transaction commits:
 * error 55P03 if it was too short.
 */
extern void le_lock_change_at_commit(Oid rel, const char *election);

/* Waits as long as it takes. */
extern void le_lock_wait(const LeLock *lock, LOCKMODE mode);

/* Gives back what this (sub)transaction has taken by one of the above. */
extern void le_lock_release(const LeLock *lock, LOCKMODE mode);

/* Both locks that a change of epoch or holder needs; false if busy. */
extern bool le_lock_change(Oid rel, const char *election);
extern void le_lock_change_release(Oid rel, const char *election);

#endif							/* LE_LOCK_H */
