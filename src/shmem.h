/*-------------------------------------------------------------------------
 *
 * shmem.h
 *	  The extension's shared memory, with and without preloading.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_SHMEM_H
#define LE_SHMEM_H

#include "access/xlogdefs.h"
#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"

#include "leader_election.h"
#include "stats.h"

typedef enum LePlaceState
{
	LE_PLACE_FREE,
	LE_PLACE_PENDING,			/* granted, its transaction has not committed */
	LE_PLACE_OPEN,				/* its deadline decides */
	LE_PLACE_CLOSING,			/* its end is being committed */
	LE_PLACE_CLOSED				/* has run out, a takeover was tried */
} LePlaceState;

/*
 * The place of a term.  All but what is atomic changes under the table's lock
 * in exclusive mode only.
 */
typedef struct LePlace
{
	int			next;			/* in its bucket or in the free list, or -1 */
	int			holder_next;	/* among those of its holder, or -1 */
	int			holder_previous;	/* or -1 if it is the first one */
	LePlaceState state;
	Oid			database;
	Oid			rel;
	int64		epoch;
	int64		ttl;			/* 0 for a session term without one */
	int64		lock_delay;		/* the deadline counts for so long after it */
	pg_atomic_uint64 deadline;
	pg_atomic_uint64 renewed;	/* when it was last; or granted */
	int			stats;			/* slot of the election's statistics, or -1 */
	XLogRecPtr	confirm_at;		/* not confirmed until standbys have this */
	char		kind;
	int			pid;			/* of the session, for a session term */
	char		owner[NAMEDATALEN];
	char		election[LE_NAME_MAX + 1];
	char		holder[LE_NAME_MAX + 1];
} LePlace;

/* When standbys were last asked whether they follow, see quorum.c */
typedef struct LeQuorum
{
	int64		asked;			/* the clock at that time; 0 if never */
	XLogRecPtr	asked_lsn;		/* what they must flush to answer */
	int64		acknowledged;	/* begun then, and answered; 0 if nothing */
} LeQuorum;

typedef struct LePlaceTable
{
	int			nplaces;
	int			nbuckets;		/* of each kind; a power of two */
	int			first_free;		/* or -1 */
	int			used;			/* places from here on were never used */
	int64		asked_at;		/* when sessions were last asked for, see
								 * place.c */
	/* The incarnation: when leases were first asked for on this server. */
	int64		start;			/* 0 before that */
	XLogRecPtr	start_lsn;
	TimeLineID	timeline;
	LeQuorum	quorum;
	/* Those of elections, then those of holders; the places follow. */
	int			buckets[FLEXIBLE_ARRAY_MEMBER];
} LePlaceTable;

/* In so many parts is the last hour divided. */
#define LE_STATS_PERIODS	20

/*
 * What is counted for one election.  All but the counters changes under the
 * lock of the statistics in exclusive mode only.
 */
typedef struct LeStats
{
	int			next;			/* in its bucket or in the free list, or -1 */
	Oid			database;
	Oid			rel;
	TimestampTz since;			/* counted from then on */
	pg_atomic_uint64 counters[LE_COUNTERS];
	pg_atomic_uint64 longest_gap;
	pg_atomic_uint64 periods[LE_STATS_PERIODS]; /* see stats.c */
	char		election[LE_NAME_MAX + 1];
} LeStats;

typedef struct LeStatsTable
{
	int			nslots;
	int			nbuckets;		/* a power of two */
	int			first_free;		/* or -1 */
	int			used;			/* slots from here on were never used */
	int			buckets[FLEXIBLE_ARRAY_MEMBER]; /* the slots follow */
} LeStatsTable;

/* What is known of a database's epochs, see epoch.c */
typedef struct LeEpochs
{
	pg_atomic_uint64 highest;	/* drawn since the server started */
	pg_atomic_uint64 reserved;	/* what the sequence was set to, ahead of what
								 * is drawn; 0 if it is not ahead */
	pg_atomic_uint64 reserved_lsn;	/* until here that is logged, at least */
	bool		shared;			/* by several databases */
} LeEpochs;

/* For _PG_init. */
extern void le_shmem_init(void);

/*
 * Attaches to the shared memory, making it first if need be.  To be called
 * before a lock is taken; everything below needs it.  Not in recovery.
 */
extern void le_shmem_attach(void);

extern LePlaceTable *le_shmem_places(void);
extern LePlace *le_shmem_place(int index);
extern LWLock *le_shmem_lock(void);

extern LeStatsTable *le_shmem_stats(void);
extern LeStats *le_shmem_stats_slot(int index);
extern LWLock *le_shmem_stats_lock(void);

/*
 * The epochs of this database.  Databases beyond the first so many share these,
 * and reserve none.
 */
extern LeEpochs *le_shmem_epochs(void);

/*
 * How many elections a table of this database has, as far as is known.  The
 * first adds one that is about to be created; false, and nothing is added, if
 * they must be counted before: as nobody has done so since that time, or as
 * there are that many.  The second says what was counted, and adds the one.
 */
extern bool le_shmem_add_election(Oid rel, int limit, int64 since);
extern void le_shmem_counted_elections(Oid rel, int count, int64 now);

/*
 * When the last lease of a table of this database ends that a restart has left
 * without a place, as it was found out in the incarnation that began then;
 * LE_FOREVER if nobody has looked.
 */
extern int64 le_shmem_forgotten_until(Oid rel, int64 start);
extern void le_shmem_set_forgotten(Oid rel, int64 start, int64 until);

/* Wakes those who wait for the end of a term. */
extern ConditionVariable *le_shmem_ended(void);

#endif							/* LE_SHMEM_H */
