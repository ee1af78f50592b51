/*-------------------------------------------------------------------------
 *
 * session.h
 *	  The locks of session terms: a term lives while its lock is held.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_SESSION_H
#define LE_SESSION_H

#include "leader_election.h"

/*
 * Takes the lock of a term that is being granted, for this session.  Whoever
 * undoes the grant gives it back by le_session_drop().
 */
extern void le_session_take(const LeKey *key, int64 ttl);

/* Gives the lock back, if this session holds it; cannot fail. */
extern void le_session_drop(const LeKey *key);

/*
 * Gives back what this session still has of earlier terms of the election: a
 * term with a TTL can end before its session does.  Cannot fail.
 */
extern void le_session_drop_earlier(const LeKey *key);

/* Does this session hold the term's lock?  Looks into its own lock table. */
extern bool le_session_mine(const LeKey *key);

/* Does any session hold it?  Takes a lock for a moment. */
extern bool le_session_alive(const LeKey *key);

/* The same for a term of any database. */
extern bool le_session_alive_in(Oid database, int64 epoch);

/*
 * Ends the session that holds the term's lock, if any does, and takes the
 * lock until the end of the transaction.  False if that took longer than
 * "until".  That cannot be undone, whatever becomes of the transaction.
 */
extern bool le_session_end(const LeKey *key, int64 until);

/* The epoch of the newest term of an election that this session holds, or 0. */
extern int64 le_session_epoch(Oid rel, const char *election);

/* Is it mine, and without a TTL, so that nobody else can end it? */
extern bool le_session_mine_alone(const LeKey *key);

/* A holder's name for this session, drawn once. */
extern const char *le_session_holder(void);

#endif							/* LE_SESSION_H */
