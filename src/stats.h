/*-------------------------------------------------------------------------
 *
 * stats.h
 *	  Counts what happens to elections, in shared memory.
 *
 * Every function here may be called once le_shmem_attach() has succeeded.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_STATS_H
#define LE_STATS_H

#include "datatype/timestamp.h"

#include "leader_election.h"

typedef enum LeCounter
{
	LE_COUNT_TERMS,
	LE_COUNT_TAKEOVERS,
	LE_COUNT_RENEWALS,
	LE_COUNT_LOSING_BIDS,
	LE_COUNT_FENCED_COMMITS,
	LE_COUNT_STALE,				/* tokens rejected: LE001 */
	LE_COUNT_MISSING,			/* LE002 */
	LE_COUNT_UNISSUED,			/* LE003 */
	LE_COUNTERS
} LeCounter;

/* What was counted for one election */
typedef struct LeStatsInfo
{
	int64		counters[LE_COUNTERS];
	int64		changes_last_hour;	/* terms that began in it */
	int64		longest_gap;	/* between two renewals of a term; 0 if none */
	TimestampTz since;			/* when counting began; 0 if it has not */
} LeStatsInfo;

/*
 * The slot in which an election's events are counted, made if there is none
 * yet; -1 if there is no room.  Not for names that are not elections, or
 * anybody could use up the room.  Valid until the election is dropped.
 */
extern int	le_stats_slot(Oid rel, const char *election);

/* Count one event; do nothing for slot -1, and cannot fail. */
extern void le_stats_count(int slot, LeCounter counter);
extern void le_stats_count_term(int slot);
extern void le_stats_count_renewal(int slot, int64 gap);

/* The same for an event by the name of the election. */
extern void le_stats_count_for(Oid rel, const char *election,
							   LeCounter counter);

/* Forgets an election that was dropped; cannot fail. */
extern void le_stats_forget(Oid rel, const char *election);

/* Begins to count anew. */
extern void le_stats_reset(Oid rel, const char *election);

/*
 * Gives back the room of everything in this database that does not belong to
 * that table of elections: the extension was dropped and created again.
 */
extern void le_stats_keep_only(Oid rel);

/*
 * What was counted.  False if that is not known, as there was no room to count;
 * all zero if nothing has happened yet.
 */
extern bool le_stats_get(Oid rel, const char *election, LeStatsInfo *info);

#endif							/* LE_STATS_H */
