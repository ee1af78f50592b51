/*-------------------------------------------------------------------------
 *
 * shmem.c
 *	  The extension's shared memory, with and without preloading.
 *
 * A small anchor of fixed name and size leads to one piece of fixed size, which
 * holds the table of places and that of statistics.
 * Preloaded, both are reserved at server start.  Otherwise the first backend
 * that needs them makes the anchor with what its major offers for that, and
 * the tables as a pinned dynamic segment; the handle is published last, so an
 * error before leaves nothing behind but the anchor.
 *
 * The anchor begins with a magic number and a number for the layout: after
 * the library was replaced on disk, old and new backends live side by side
 * until the last old one ends, and must not misread each other's memory.
 *
 * Lock order: the anchor's lock is taken only to find or make the table, or for
 * what is known of a database, and no other lock of ours within it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/dsm.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

#include "clock.h"
#include "compat.h"
#include "guc.h"
#include "shmem.h"
#ifdef LE_HAVE_DSM_REGISTRY
#include "storage/dsm_registry.h"
#endif

#define ANCHOR_NAME			"leader_election"
#define PLACES_NAME			"leader_election places"
#define ANCHOR_MAGIC		0x4c454144
#define LAYOUT_VERSION		2
#define ANCHOR_SIZE			8192
#define NDATABASES			64

/* What is known of a database */
typedef struct Database
{
	Oid			database;		/* InvalidOid if free, and in the last one */
	Oid			counted;		/* table whose elections were counted */
	int			elections;
	int64		counted_at;
	Oid			scanned;		/* table searched for forgotten leases */
	int64		scanned_start;	/* in the incarnation that began then */
	int64		forgotten_until;
	LeEpochs	epochs;
} Database;

typedef struct Anchor
{
	uint32		magic;
	uint32		layout;
	int			tranche;
	dsm_handle	handle;			/* of the table, unless it was preloaded */
	LWLock		anchor_lock;
	LWLock		places_lock;
	LWLock		stats_lock;
	Database	databases[NDATABASES];	/* all but epochs under anchor_lock */
	ConditionVariable ended;
} Anchor;

StaticAssertDecl(sizeof(Anchor) <= ANCHOR_SIZE, "anchor is too large");

/* Whoever changes what lies in memory without another size, counts up. */
#define LAYOUT \
	(LAYOUT_VERSION * 1000003 + sizeof(LePlace) * 1009 + \
	 sizeof(LeStats) * 503 + sizeof(LePlaceTable) * 101 + sizeof(Anchor))

static Anchor *anchor = NULL;
static LePlaceTable *places = NULL;
static LePlace *place_array = NULL;
static LeStatsTable *stats = NULL;
static LeStats *stats_array = NULL;

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

static int
bucket_count(int nplaces)
{
	int			buckets = 64;

	while (buckets < nplaces)
		buckets *= 2;
	return buckets;
}

static Size
places_offset(int nbuckets)
{
	return MAXALIGN(add_size(offsetof(LePlaceTable, buckets),
							 mul_size(nbuckets, 2 * sizeof(int))));
}

/* There is one slot of statistics for each place. */
static Size
stats_table_offset(int nplaces)
{
	return MAXALIGN(add_size(places_offset(bucket_count(nplaces)),
							 mul_size(nplaces, sizeof(LePlace))));
}

static Size
stats_offset(int nbuckets)
{
	return MAXALIGN(add_size(offsetof(LeStatsTable, buckets),
							 mul_size(nbuckets, sizeof(int))));
}

static Size
table_size(int nplaces)
{
	return add_size(stats_table_offset(nplaces),
					add_size(stats_offset(bucket_count(nplaces)),
							 mul_size(nplaces, sizeof(LeStats))));
}

static void
init_anchor(void *ptr)
{
	Anchor	   *a = ptr;

	a->tranche = LWLockNewTrancheId();
	a->handle = DSM_HANDLE_INVALID;
	LWLockInitialize(&a->anchor_lock, a->tranche);
	LWLockInitialize(&a->places_lock, a->tranche);
	LWLockInitialize(&a->stats_lock, a->tranche);
	for (int i = 0; i < NDATABASES; i++)
	{
		a->databases[i].database = InvalidOid;
		a->databases[i].counted = InvalidOid;
		a->databases[i].scanned = InvalidOid;
		pg_atomic_init_u64(&a->databases[i].epochs.highest, 0);
		pg_atomic_init_u64(&a->databases[i].epochs.reserved, 0);
		pg_atomic_init_u64(&a->databases[i].epochs.reserved_lsn, 0);
		a->databases[i].epochs.shared = i == NDATABASES - 1;
	}
	ConditionVariableInit(&a->ended);
	a->layout = LAYOUT;
	a->magic = ANCHOR_MAGIC;
}

static void
init_table(LePlaceTable *table, int nplaces)
{
	table->nplaces = nplaces;
	table->nbuckets = bucket_count(nplaces);
	table->first_free = -1;
	table->used = 0;
	table->asked_at = 0;
	table->start = 0;
	table->start_lsn = InvalidXLogRecPtr;
	table->timeline = 0;
	memset(&table->quorum, 0, sizeof(table->quorum));
	for (int i = 0; i < 2 * table->nbuckets; i++)
		table->buckets[i] = -1;
}

static LeStatsTable *
stats_table(LePlaceTable *table)
{
	return (LeStatsTable *) ((char *) table +
							 stats_table_offset(table->nplaces));
}

static void
init_stats(LeStatsTable *table, int nslots)
{
	LeStats    *slots;

	table->nslots = nslots;
	table->nbuckets = bucket_count(nslots);
	table->first_free = -1;
	table->used = 0;
	for (int i = 0; i < table->nbuckets; i++)
		table->buckets[i] = -1;
	slots = (LeStats *) ((char *) table + stats_offset(table->nbuckets));
	for (int i = 0; i < nslots; i++)
	{
		for (int j = 0; j < LE_COUNTERS; j++)
			pg_atomic_init_u64(&slots[i].counters[j], 0);
		pg_atomic_init_u64(&slots[i].longest_gap, 0);
		for (int j = 0; j < LE_STATS_PERIODS; j++)
			pg_atomic_init_u64(&slots[i].periods[j], 0);
	}
}

static void
init_tables(LePlaceTable *table, int nplaces)
{
	init_table(table, nplaces);
	init_stats(stats_table(table), nplaces);
}

static void
use_tables(LePlaceTable *table)
{
	place_array = (LePlace *) ((char *) table + places_offset(table->nbuckets));
	stats = stats_table(table);
	stats_array = (LeStats *) ((char *) stats + stats_offset(stats->nbuckets));
	places = table;
}

static void
request_shmem(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	RequestAddinShmemSpace(add_size(ANCHOR_SIZE, table_size(le_max_leases)));
}

static void
startup_shmem(void)
{
	bool		found;
	LePlaceTable *table;

	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	anchor = ShmemInitStruct(ANCHOR_NAME, ANCHOR_SIZE, &found);
	if (!found)
		init_anchor(anchor);
	table = ShmemInitStruct(PLACES_NAME, table_size(le_max_leases), &found);
	if (!found)
		init_tables(table, le_max_leases);
	LWLockRelease(AddinShmemInitLock);
	LWLockRegisterTranche(anchor->tranche, ANCHOR_NAME);
	use_tables(table);
}

/* An anchor made late. */
static Anchor *
find_anchor(void)
{
	bool		found;
	Anchor	   *a;

#ifdef LE_HAVE_DSM_REGISTRY
	a = GetNamedDSMSegment(ANCHOR_NAME, ANCHOR_SIZE, init_anchor, &found);
#else
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	a = ShmemInitStruct(ANCHOR_NAME, ANCHOR_SIZE, &found);
	if (!found)
		init_anchor(a);
	LWLockRelease(AddinShmemInitLock);
#endif
	if (a->magic != ANCHOR_MAGIC || a->layout != LAYOUT)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("another build of leader_election is in use on this server"),
				 errhint("Restart the server to use the build that is installed now.")));
	LWLockRegisterTranche(a->tranche, ANCHOR_NAME);
	return a;
}

/* Maps the tables for the rest of this backend's life. */
static LePlaceTable *
find_table(void)
{
	dsm_segment *segment;

	LWLockAcquire(&anchor->anchor_lock, LW_EXCLUSIVE);
	if (anchor->handle == DSM_HANDLE_INVALID)
	{
		segment = dsm_create(table_size(le_max_leases), 0);
		init_tables(dsm_segment_address(segment), le_max_leases);
		dsm_pin_segment(segment);
		anchor->handle = dsm_segment_handle(segment);
	}
	else
		segment = dsm_attach(anchor->handle);
	LWLockRelease(&anchor->anchor_lock);

	if (segment == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("could not attach to the shared memory of leader_election"),
				 errhint("Restart the server.")));
	dsm_pin_mapping(segment);
	return dsm_segment_address(segment);
}

void
le_shmem_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = request_shmem;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = startup_shmem;
}

void
le_shmem_attach(void)
{
	if (places != NULL)
		return;
	if (!IsUnderPostmaster)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("leadership is not available in single-user mode")));
	if (anchor == NULL)
		anchor = find_anchor();
	use_tables(find_table());
}

LePlaceTable *
le_shmem_places(void)
{
	return places;
}

LePlace *
le_shmem_place(int index)
{
	return &place_array[index];
}

LWLock *
le_shmem_lock(void)
{
	return &anchor->places_lock;
}

LeStatsTable *
le_shmem_stats(void)
{
	return stats;
}

LeStats *
le_shmem_stats_slot(int index)
{
	return &stats_array[index];
}

LWLock *
le_shmem_stats_lock(void)
{
	return &anchor->stats_lock;
}

static Database *
my_database(void)
{
	static Database *mine = NULL;
	int			i;

	if (mine != NULL)
		return mine;
	LWLockAcquire(&anchor->anchor_lock, LW_EXCLUSIVE);
	for (i = 0; i < NDATABASES - 1; i++)
	{
		if (anchor->databases[i].database == MyDatabaseId ||
			anchor->databases[i].database == InvalidOid)
		{
			anchor->databases[i].database = MyDatabaseId;
			break;
		}
	}
	mine = &anchor->databases[i];
	LWLockRelease(&anchor->anchor_lock);
	return mine;
}

LeEpochs *
le_shmem_epochs(void)
{
	return &my_database()->epochs;
}

bool
le_shmem_add_election(Oid rel, int limit, int64 since)
{
	Database   *mine = my_database();
	bool		added;

	LWLockAcquire(&anchor->anchor_lock, LW_EXCLUSIVE);
	added = mine->counted == rel && mine->database == MyDatabaseId &&
		mine->counted_at > since && mine->elections < limit;
	if (added)
		mine->elections++;
	LWLockRelease(&anchor->anchor_lock);
	return added;
}

void
le_shmem_counted_elections(Oid rel, int count, int64 now)
{
	Database   *mine = my_database();

	LWLockAcquire(&anchor->anchor_lock, LW_EXCLUSIVE);
	mine->counted = rel;
	mine->elections = count + 1;
	mine->counted_at = now;
	LWLockRelease(&anchor->anchor_lock);
}

int64
le_shmem_forgotten_until(Oid rel, int64 start)
{
	Database   *mine = my_database();
	int64		until = LE_FOREVER;

	LWLockAcquire(&anchor->anchor_lock, LW_SHARED);
	if (mine->scanned == rel && mine->database == MyDatabaseId &&
		mine->scanned_start == start)
		until = mine->forgotten_until;
	LWLockRelease(&anchor->anchor_lock);
	return until;
}

void
le_shmem_set_forgotten(Oid rel, int64 start, int64 until)
{
	Database   *mine = my_database();

	LWLockAcquire(&anchor->anchor_lock, LW_EXCLUSIVE);
	mine->scanned = rel;
	mine->scanned_start = start;
	mine->forgotten_until = until;
	LWLockRelease(&anchor->anchor_lock);
}

ConditionVariable *
le_shmem_ended(void)
{
	return &anchor->ended;
}
