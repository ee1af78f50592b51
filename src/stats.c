/*-------------------------------------------------------------------------
 *
 * stats.c
 *	  Counts what happens to elections, in shared memory.
 *
 * A second table of fixed size beside that of the places: counters survive the
 * error that a rejection ends in, and the end of a term.  They do not survive
 * the server.
 *
 * Locking: a lock of its own, within no other.  Slots are found under it in
 * shared mode and made or freed in exclusive mode; counters are atomic, and
 * so is the ring of periods, of which an hour has twenty.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "shmem.h"
#include "stats.h"

#define PERIOD			(3600 * LE_SECOND / LE_STATS_PERIODS)

static int *
bucket_of(Oid rel, const char *election)
{
	LeStatsTable *table = le_shmem_stats();
	uint32		hash = hash_bytes((const unsigned char *) election,
								  strlen(election));

	hash = hash_combine(hash, hash_combine(MyDatabaseId, rel));
	return &table->buckets[hash & (table->nbuckets - 1)];
}

/* The link that leads to an election's slot, or to the end of its chain */
static int *
find_link(Oid rel, const char *election)
{
	int		   *link = bucket_of(rel, election);

	while (*link >= 0)
	{
		LeStats    *stats = le_shmem_stats_slot(*link);

		if (stats->database == MyDatabaseId && stats->rel == rel &&
			strcmp(stats->election, election) == 0)
			break;
		link = &stats->next;
	}
	return link;
}

static void
clear(LeStats *stats)
{
	for (int i = 0; i < LE_COUNTERS; i++)
		pg_atomic_write_u64(&stats->counters[i], 0);
	pg_atomic_write_u64(&stats->longest_gap, 0);
	for (int i = 0; i < LE_STATS_PERIODS; i++)
		pg_atomic_write_u64(&stats->periods[i], 0);
	stats->since = GetCurrentTimestamp();
}

static int
find_slot(Oid rel, const char *election)
{
	int			slot;

	LWLockAcquire(le_shmem_stats_lock(), LW_SHARED);
	slot = *find_link(rel, election);
	LWLockRelease(le_shmem_stats_lock());
	return slot;
}

/* A slot that is in no chain, or -1; the lock is held in exclusive mode. */
static int
allocate(void)
{
	LeStatsTable *table = le_shmem_stats();
	int			slot = table->first_free;

	if (slot >= 0)
	{
		table->first_free = le_shmem_stats_slot(slot)->next;
		return slot;
	}
	return table->used < table->nslots ? table->used++ : -1;
}

int
le_stats_slot(Oid rel, const char *election)
{
	int			slot = find_slot(rel, election);
	int		   *link;

	if (slot >= 0)
		return slot;
	LWLockAcquire(le_shmem_stats_lock(), LW_EXCLUSIVE);
	link = find_link(rel, election);
	slot = *link;
	if (slot < 0 && (slot = allocate()) >= 0)
	{
		LeStats    *stats = le_shmem_stats_slot(slot);

		stats->next = -1;
		stats->database = MyDatabaseId;
		stats->rel = rel;
		strlcpy(stats->election, election, sizeof(stats->election));
		clear(stats);
		*link = slot;
	}
	LWLockRelease(le_shmem_stats_lock());
	return slot;
}

void
le_stats_count(int slot, LeCounter counter)
{
	if (slot >= 0)
		pg_atomic_fetch_add_u64(&le_shmem_stats_slot(slot)->counters[counter], 1);
}

void
le_stats_count_for(Oid rel, const char *election, LeCounter counter)
{
	le_stats_count(le_stats_slot(rel, election), counter);
}

/*
 * A period of the ring holds its number in the upper half, and what was counted
 * in it in the lower one; a count in another period begins it anew.
 */
void
le_stats_count_term(int slot)
{
	uint64		period = le_clock_now() / PERIOD;
	pg_atomic_uint64 *entry;
	uint64		seen;
	uint64		next;

	if (slot < 0)
		return;
	le_stats_count(slot, LE_COUNT_TERMS);
	entry = &le_shmem_stats_slot(slot)->periods[period % LE_STATS_PERIODS];
	seen = pg_atomic_read_u64(entry);
	do
		next = seen >> 32 == period ? seen + 1 : period << 32 | 1;
	while (!pg_atomic_compare_exchange_u64(entry, &seen, next));
}

void
le_stats_count_renewal(int slot, int64 gap)
{
	LeStats    *stats;
	uint64		seen;

	if (slot < 0)
		return;
	stats = le_shmem_stats_slot(slot);
	pg_atomic_fetch_add_u64(&stats->counters[LE_COUNT_RENEWALS], 1);
	seen = pg_atomic_read_u64(&stats->longest_gap);
	while (seen < (uint64) gap &&
		   !pg_atomic_compare_exchange_u64(&stats->longest_gap, &seen, gap))
		;
}

/* Frees the slot that a link leads to; the lock is held in exclusive mode. */
static void
free_at(int *link)
{
	LeStatsTable *table = le_shmem_stats();
	int			slot = *link;
	LeStats    *stats = le_shmem_stats_slot(slot);

	*link = stats->next;
	stats->database = InvalidOid;
	stats->next = table->first_free;
	table->first_free = slot;
}

void
le_stats_forget(Oid rel, const char *election)
{
	int		   *link;

	LWLockAcquire(le_shmem_stats_lock(), LW_EXCLUSIVE);
	link = find_link(rel, election);
	if (*link >= 0)
		free_at(link);
	LWLockRelease(le_shmem_stats_lock());
}

void
le_stats_keep_only(Oid rel)
{
	LeStatsTable *table = le_shmem_stats();

	LWLockAcquire(le_shmem_stats_lock(), LW_EXCLUSIVE);
	for (int bucket = 0; bucket < table->nbuckets; bucket++)
	{
		int		   *link = &table->buckets[bucket];

		while (*link >= 0)
		{
			LeStats    *stats = le_shmem_stats_slot(*link);

			if (stats->database == MyDatabaseId && stats->rel != rel)
				free_at(link);
			else
				link = &stats->next;
		}
	}
	LWLockRelease(le_shmem_stats_lock());
}

void
le_stats_reset(Oid rel, const char *election)
{
	int			slot = le_stats_slot(rel, election);

	LWLockAcquire(le_shmem_stats_lock(), LW_EXCLUSIVE);
	if (slot >= 0 && *find_link(rel, election) == slot)
		clear(le_shmem_stats_slot(slot));
	LWLockRelease(le_shmem_stats_lock());
}

bool
le_stats_get(Oid rel, const char *election, LeStatsInfo *info)
{
	LeStatsTable *table = le_shmem_stats();
	uint64		now = le_clock_now() / PERIOD;
	int			slot;
	bool		known;

	memset(info, 0, sizeof(LeStatsInfo));
	LWLockAcquire(le_shmem_stats_lock(), LW_SHARED);
	slot = *find_link(rel, election);
	if (slot >= 0)
	{
		LeStats    *stats = le_shmem_stats_slot(slot);

		for (int i = 0; i < LE_COUNTERS; i++)
			info->counters[i] = pg_atomic_read_u64(&stats->counters[i]);
		for (int i = 0; i < LE_STATS_PERIODS; i++)
		{
			uint64		entry = pg_atomic_read_u64(&stats->periods[i]);

			if (now - (entry >> 32) < LE_STATS_PERIODS)
				info->changes_last_hour += (uint32) entry;
		}
		info->longest_gap = pg_atomic_read_u64(&stats->longest_gap);
		info->since = stats->since;
	}
	known = slot >= 0 || table->first_free >= 0 || table->used < table->nslots;
	LWLockRelease(le_shmem_stats_lock());
	return known;
}
