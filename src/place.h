/*-------------------------------------------------------------------------
 *
 * place.h
 *	  The places of live terms in shared memory: until when, and in what state.
 *
 * Every function here may be called once le_shmem_attach() has succeeded.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_PLACE_H
#define LE_PLACE_H

#include "leader_election.h"
#include "shmem.h"
#include "store.h"

/* A copy of what a place says, and the clock read while it said so. */
typedef struct LePlaceInfo
{
	bool		found;
	LePlaceState state;
	bool		confirmed;		/* do enough standbys have the term? */
	bool		ask;			/* set by a renewal: ask standbys anew */
	char		kind;
	int			pid;			/* of the session, for a session term */
	int64		epoch;
	int64		ttl;
	int64		deadline;
	int64		now;			/* set also if not found */
	int64		start;			/* of the incarnation; set also if not found */
	char		owner[NAMEDATALEN];
	char		holder[LE_NAME_MAX + 1];
} LePlaceInfo;

/* Which place it was, and of which term then */
typedef struct LePlaceRef
{
	int			index;
	int64		epoch;
} LePlaceRef;

typedef struct LePlaceList
{
	Oid			rel;
	const char *holder;
	int			left;			/* of the places, from the first on */
	LePlaceRef *refs;
} LePlaceList;

extern void le_place_look(const LeKey *key, LePlaceInfo *info);

/*
 * The same for one who only watches: the grace after a restart does not begin
 * to run by it.
 */
extern void le_place_peek(const LeKey *key, LePlaceInfo *info);

/*
 * The term of an election that is led now, as its place has it; key's epoch is
 * not asked, and set.  False if no place says that somebody leads.
 */
extern bool le_place_look_live(LeKey *key, LePlaceInfo *info);

/*
 * Raises the deadline of an open, confirmed place that has not run out to one
 * TTL from now, or from when standbys last vouched for this server; that of a
 * session term for its own session only, while that has its lock.  True if
 * the term is led after it; info is what was found then.
 */
extern bool le_place_renew(const LeKey *key, LePlaceInfo *info);

/*
 * Makes the place of a term: pending for one that was just granted; open for
 * one that a restart had forgotten, and if standbys are to confirm terms, not
 * confirmed before they have everything up to the restart.  Does nothing if
 * the term has one.  The row has all but the times.  False if there is no room.
 */
extern bool le_place_make(const LeKey *key, const LeElection *row,
						  int64 lock_delay, LePlaceState state,
						  int64 deadline);

/*
 * The deadline of a term that has no place: one TTL after the incarnation's
 * start, LE_FOREVER for a session term without a TTL.
 */
extern int64 le_place_forgotten_deadline(int64 start, int64 ttl);

/*
 * Closes the place of a lapsed term, for a takeover.  False, and nothing is
 * done, if it has not lapsed.  A term without a place has lapsed one TTL
 * after the start, one whose session has ended whatever its deadline.  The
 * election is locked in ExclusiveLock.
 */
extern bool le_place_close_lapsed(const LeKey *key, int64 ttl,
								  bool session_ended);

/* Transitions at the end of a transaction; they cannot fail. */
extern void le_place_open(const LeKey *key, XLogRecPtr confirm_at);
extern void le_place_closing(const LeKey *key);
extern void le_place_reopen(const LeKey *key);
extern void le_place_free(const LeKey *key);

/* Another owner (unless NULL) and lock delay (unless negative); cannot fail. */
extern void le_place_configure(const LeKey *key, const char *owner,
							   int64 lock_delay);

/* The places that one holder has, in the caller's memory context. */
extern LePlaceList *le_place_list(Oid rel, const char *holder);

/* How many leases a sweep deals with under one lock */
#define LE_SWEEP_BATCH		32

/* A lease that a sweep has met */
typedef struct LeSwept
{
	bool		renewed;		/* else it is not plainly led */
	int64		epoch;
	int64		left;			/* if renewed */
	char		election[LE_NAME_MAX + 1];
} LeSwept;

/* A sweep over the leases of one holder, which begins with all else zero. */
typedef struct LeSweep
{
	LePlaceList *list;			/* of le_place_list() */
	bool		look_only;		/* renew none */
	bool		allowed;		/* may the caller renew what owner owns? */
	char		owner[NAMEDATALEN];
	int64		least_ttl;		/* of those renewed in the batch, or 0 */
	bool		ask;			/* ask standbys anew, for that TTL */
	int			count;			/* of the batch */
	LeSwept		batch[LE_SWEEP_BATCH];
} LeSweep;

/*
 * Renews the next leases of the list that have not been freed since, those of
 * sweep->owner only: it stops at one of another owner and sets that.  So rights
 * are asked for without the lock, before each call, and hold for whom it finds
 * there under the lock.
 * False after the last.
 */
extern bool le_place_sweep(LeSweep *sweep);

#endif							/* LE_PLACE_H */
