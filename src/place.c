/*-------------------------------------------------------------------------
 *
 * place.c
 *	  The places of live terms in shared memory: until when, and in what state.
 *
 * A renewal touches nothing but a place.  What a place says:
 *	  open		its deadline decides
 *	  pending	granted by a transaction that has not committed
 *	  closing	ended by a transaction that is committing
 *	  closed	ran out, and somebody has bid for it since
 * For a bid the middle two are held until their deadline; for a renewal or a
 * check by anybody but their own transaction they are not led.  So is an open
 * place as long as too few synchronous standbys have its term.
 *
 * A term without a place, while the row names its holder, was granted before
 * the server (re)started: it is held until one TTL after the incarnation's
 * start.  As no deadline given in an incarnation can be earlier than that, a
 * place that has run out can be given to another term: looking for the old
 * one afterwards revives nothing.
 *
 * Locking: the table's lock, shared to look, to renew and to find a renewal
 * spent, exclusive for all else.  So nothing can happen to a state between
 * the test of a renewal and its raise, and two renewals only compete to
 * raise.  The clock is read under the lock.
 *
 * Every place that is not free is in two chains: in that of its election, for
 * whose hash the epoch does not count, and in that of its holder, which leads
 * both ways, as one holder may have very many.  So nothing is searched but
 * what was asked for, however many places there are.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "common/hashfn.h"
#include "miscadmin.h"

#include "clock.h"
#include "place.h"
#include "quorum.h"
#include "session.h"
#include "standby.h"

/* Between two times of asking whether sessions that led still do */
#define ASK_SESSIONS_PAUSE	(100 * LE_MS)
/* For so many places of one holder is room at once */
#define PLACES_AT_FIRST		16

static uint32
bucket_number(Oid database, Oid rel, const char *name)
{
	uint32		hash = hash_bytes((const unsigned char *) name, strlen(name));

	hash = hash_combine(hash, hash_combine(database, rel));
	return hash & (le_shmem_places()->nbuckets - 1);
}

static int *
bucket_of(Oid rel, const char *election)
{
	return &le_shmem_places()->buckets[bucket_number(MyDatabaseId, rel,
													 election)];
}

static int *
holders_bucket(Oid database, Oid rel, const char *holder)
{
	LePlaceTable *table = le_shmem_places();

	return &table->buckets[table->nbuckets +
						   bucket_number(database, rel, holder)];
}

static bool
same_election(const LePlace *place, const LeKey *key)
{
	return place->rel == key->rel && place->database == MyDatabaseId &&
		strcmp(place->election, key->election) == 0;
}

/*
 * The link that leads to a place, or to the end of the chain if the term has
 * none.  The caller holds the table's lock in any mode.
 */
static int *
find_link(const LeKey *key)
{
	int		   *link = bucket_of(key->rel, key->election);

	while (*link >= 0)
	{
		LePlace    *place = le_shmem_place(*link);

		if (place->epoch == key->epoch && same_election(place, key))
			break;
		link = &place->next;
	}
	return link;
}

static LePlace *
find(const LeKey *key)
{
	int			index = *find_link(key);

	return index >= 0 ? le_shmem_place(index) : NULL;
}

/* Has an incarnation begun, and on the server's present timeline? */
static bool
has_begun(const LePlaceTable *table)
{
	return table->start != 0 && table->timeline == GetWALInsertionTimeLine();
}

/*
 * Takes the table's lock in shared mode, and sees to it that an incarnation
 * has begun; a promotion begins another one.
 */
static LePlaceTable *
lock_shared(void)
{
	LePlaceTable *table = le_shmem_places();
	XLogRecPtr	asked_lsn;

	LWLockAcquire(le_shmem_lock(), LW_SHARED);
	while (unlikely(!has_begun(table)))
	{
		LWLockRelease(le_shmem_lock());
		LWLockAcquire(le_shmem_lock(), LW_EXCLUSIVE);
		if (!has_begun(table))
		{
			table->start = le_clock_now();
			table->start_lsn = le_quorum_begin(table->start);
			table->timeline = GetWALInsertionTimeLine();
		}
		asked_lsn = table->quorum.asked_lsn;
		LWLockRelease(le_shmem_lock());
		if (!XLogRecPtrIsInvalid(asked_lsn))
			XLogFlush(asked_lsn);
		LWLockAcquire(le_shmem_lock(), LW_SHARED);
	}
	return table;
}

/*
 * Until when a term is held.  With synchronous standbys a renewal counts from
 * when they last vouched for this server, and what they say after it counts as
 * well: the holder was told less, so nobody loses by that.  But a term that was
 * once seen to have run out stays so.  The lock is held in any mode.
 */
static int64
deadline_of(LePlace *place, int64 now)
{
	int64		deadline = (int64) pg_atomic_read_u64(&place->deadline);
	uint64		renewed = pg_atomic_read_u64(&place->renewed);

	if (place->ttl == 0 || !le_standby_defined())
		return deadline;
	deadline = Max(deadline, place->ttl +
				   Min((int64) renewed, le_quorum_vouched((int64) renewed)));
	if (now >= deadline)
		(void) pg_atomic_compare_exchange_u64(&place->renewed, &renewed, 0);
	return deadline;
}

/* Copies what a place says now, which is set in info already. */
static void
copy_place(LePlace *place, LePlaceInfo *info)
{
	info->found = true;
	info->state = place->state;
	/* Derived at each look: nobody has to be told when a standby catches up. */
	info->confirmed = le_standby_has(place->confirm_at);
	info->kind = place->kind;
	info->pid = place->pid;
	info->epoch = place->epoch;
	info->ttl = place->ttl;
	info->deadline = deadline_of(place, info->now);
	strlcpy(info->owner, place->owner, NAMEDATALEN);
	strlcpy(info->holder, place->holder, sizeof(info->holder));
}

/*
 * For a term without a place.  The row tells of it, but perhaps no standby
 * does, unless all that was written before the incarnation has got there.
 */
static void
copy_nothing(LePlaceInfo *info)
{
	const LePlaceTable *table = le_shmem_places();

	memset(info, 0, sizeof(LePlaceInfo));
	info->now = le_clock_now();
	info->state = LE_PLACE_FREE;
	info->confirmed = le_standby_has(has_begun(table) ? table->start_lsn :
									 le_standby_log_end());
}

/* What there is of a term; the caller holds the lock, and releases it here. */
static void
look_and_unlock(const LeKey *key, LePlaceInfo *info)
{
	const LePlaceTable *table = le_shmem_places();
	LePlace    *place = find(key);

	info->now = le_clock_now();
	if (place)
		copy_place(place, info);
	else
		copy_nothing(info);
	info->start = has_begun(table) ? table->start : info->now;
	LWLockRelease(le_shmem_lock());
}

void
le_place_look(const LeKey *key, LePlaceInfo *info)
{
	(void) lock_shared();
	look_and_unlock(key, info);
}

void
le_place_peek(const LeKey *key, LePlaceInfo *info)
{
	LWLockAcquire(le_shmem_lock(), LW_SHARED);
	look_and_unlock(key, info);
}

/* Its deadline decides, and has not come; the lock is held in any mode. */
static bool
is_live(LePlace *place, int64 now)
{
	return place->state == LE_PLACE_OPEN &&
		now < deadline_of(place, now) &&
		le_standby_has(place->confirm_at);
}

bool
le_place_look_live(LeKey *key, LePlaceInfo *info)
{
	LePlaceTable *table = lock_shared();
	int			index = *bucket_of(key->rel, key->election);
	bool		live = false;

	info->now = le_clock_now();
	info->start = table->start;
	while (!live && index >= 0)
	{
		LePlace    *place = le_shmem_place(index);

		live = same_election(place, key) && is_live(place, info->now);
		if (live)
		{
			key->epoch = place->epoch;
			copy_place(place, info);
		}
		index = place->next;
	}
	LWLockRelease(le_shmem_lock());
	return live;
}

/*
 * Never lowers: a holder counts on what it was told.  Returns the deadline
 * after it, which the holder may be told.
 */
static int64
raise_deadline(LePlace *place, int64 deadline)
{
	uint64		seen = pg_atomic_read_u64(&place->deadline);

	while (seen < (uint64) deadline)
	{
		if (pg_atomic_compare_exchange_u64(&place->deadline, &seen, deadline))
			return deadline;
	}
	return (int64) seen;
}

/*
 * Gives a live lease one TTL from when standbys last vouched for this server;
 * the lock is held in any mode.
 */
static int64
prolong(LePlace *place, int64 vouched, int64 now)
{
	int64		before = (int64) pg_atomic_exchange_u64(&place->renewed, now);

	le_stats_count_renewal(place->stats,
						   before > 0 ? Max(now - before, 0) : 0);
	return raise_deadline(place, vouched + place->ttl);
}

bool
le_place_renew(const LeKey *key, LePlaceInfo *info)
{
	LePlaceTable *table = lock_shared();
	LePlace    *place = find(key);
	bool		led = false;

	info->now = le_clock_now();
	info->ask = false;
	if (place)
	{
		led = is_live(place, info->now) &&
			(place->kind != LE_KIND_SESSION || le_session_mine(key));
		copy_place(place, info);
		if (led && place->ttl > 0)
		{
			info->deadline = prolong(place, le_quorum_vouched(info->now),
									 info->now);
			info->ask = le_quorum_due(place->ttl, info->now);
		}
	}
	else
		copy_nothing(info);
	info->start = table->start;
	LWLockRelease(le_shmem_lock());
	return led;
}

/* To the places of its holder, and from them; the lock is held exclusively. */
static void
join_holder(LePlace *place)
{
	int		   *bucket = holders_bucket(place->database, place->rel,
										place->holder);

	place->holder_previous = -1;
	place->holder_next = *bucket;
	*bucket = place - le_shmem_place(0);
	if (place->holder_next >= 0)
		le_shmem_place(place->holder_next)->holder_previous = *bucket;
}

static void
leave_holder(const LePlace *place)
{
	if (place->holder_previous >= 0)
		le_shmem_place(place->holder_previous)->holder_next = place->holder_next;
	else
		*holders_bucket(place->database, place->rel, place->holder) =
			place->holder_next;
	if (place->holder_next >= 0)
		le_shmem_place(place->holder_next)->holder_previous =
			place->holder_previous;
}

/*
 * Frees the place that a link leads to; the link leads on to the next one.
 * The lock is held in exclusive mode.
 */
static void
free_at(int *link)
{
	LePlaceTable *table = le_shmem_places();
	int			index = *link;
	LePlace    *place = le_shmem_place(index);

	*link = place->next;
	leave_holder(place);
	place->state = LE_PLACE_FREE;
	place->next = table->first_free;
	table->first_free = index;
}

/* From when on nobody asks for the deadline any more */
static int64
end_of(LePlace *place, int64 now)
{
	int64		deadline = deadline_of(place, now);

	return deadline == LE_FOREVER ? LE_FOREVER : deadline + place->lock_delay;
}

/*
 * Belongs to no transaction, and no renewal can bring it back: its time has run
 * out, or the session that led has ended.
 */
static bool
has_run_out(LePlace *place, int64 now, bool ask_sessions)
{
	if ((place->state != LE_PLACE_OPEN && place->state != LE_PLACE_CLOSED) ||
		!le_standby_has(place->confirm_at))
		return false;
	return now >= end_of(place, now) ||
		(ask_sessions && place->kind == LE_KIND_SESSION &&
		 !le_session_alive_in(place->database, place->epoch));
}

/*
 * Frees every place that has run out, in all databases.  The lock is held in
 * exclusive mode; asking for sessions takes locks of the lock manager inside
 * it, whose holders never ask for ours.  As every renewal has to wait
 * meanwhile, that is not done for each bid that finds no room.
 */
static void
sweep(void)
{
	LePlaceTable *table = le_shmem_places();
	int64		now = le_clock_now();
	bool		ask_sessions = now - table->asked_at > ASK_SESSIONS_PAUSE;

	if (ask_sessions)
		table->asked_at = now;
	for (int bucket = 0; bucket < table->nbuckets; bucket++)
	{
		int		   *link = &table->buckets[bucket];

		while (*link >= 0)
		{
			LePlace    *place = le_shmem_place(*link);

			if (has_run_out(place, now, ask_sessions))
				free_at(link);
			else
				link = &place->next;
		}
	}
}

/* A place that is in no chain, or NULL; the lock is held in exclusive mode. */
static LePlace *
allocate(void)
{
	LePlaceTable *table = le_shmem_places();
	LePlace    *place;

	if (table->first_free < 0 && table->used < table->nplaces)
	{
		place = le_shmem_place(table->used++);
		pg_atomic_init_u64(&place->deadline, 0);
		pg_atomic_init_u64(&place->renewed, 0);
		return place;
	}
	if (table->first_free < 0)
		sweep();
	if (table->first_free < 0)
		return NULL;
	place = le_shmem_place(table->first_free);
	table->first_free = place->next;
	return place;
}

bool
le_place_make(const LeKey *key, const LeElection *row, int64 lock_delay,
			  LePlaceState state, int64 deadline)
{
	LePlaceTable *table = le_shmem_places();
	int		   *bucket = bucket_of(key->rel, key->election);
	int			stats = le_stats_slot(key->rel, key->election);
	LePlace    *place;

	LWLockAcquire(le_shmem_lock(), LW_EXCLUSIVE);
	place = find(key);
	if (place == NULL && (place = allocate()) != NULL)
	{
		place->state = state;
		place->database = MyDatabaseId;
		place->rel = key->rel;
		place->epoch = key->epoch;
		place->ttl = row->ttl;
		place->lock_delay = lock_delay;
		place->kind = row->kind;
		place->pid = row->kind == LE_KIND_SESSION ? MyProcPid : 0;
		place->confirm_at = state == LE_PLACE_OPEN && le_standby_defined() ?
			table->start_lsn : InvalidXLogRecPtr;
		pg_atomic_write_u64(&place->deadline, deadline);
		pg_atomic_write_u64(&place->renewed, deadline - row->ttl);
		place->stats = stats;
		strlcpy(place->owner, row->owner, NAMEDATALEN);
		strlcpy(place->election, key->election, sizeof(place->election));
		strlcpy(place->holder, row->holder, sizeof(place->holder));
		place->next = *bucket;
		*bucket = place - le_shmem_place(0);
		join_holder(place);
	}
	LWLockRelease(le_shmem_lock());
	return place != NULL;
}

int64
le_place_forgotten_deadline(int64 start, int64 ttl)
{
	return ttl > 0 ? start + ttl : LE_FOREVER;
}

bool
le_place_close_lapsed(const LeKey *key, int64 ttl, bool session_ended)
{
	LePlaceTable *table = le_shmem_places();
	LePlace    *place;
	bool		lapsed;
	int64		now;

	LWLockAcquire(le_shmem_lock(), LW_EXCLUSIVE);
	place = find(key);
	now = le_clock_now();
	if (place == NULL)
		lapsed = session_ended ||
			now >= le_place_forgotten_deadline(table->start, ttl);
	else
	{
		lapsed = session_ended || place->state == LE_PLACE_CLOSED ||
			now >= deadline_of(place, now);
		if (lapsed)
			place->state = LE_PLACE_CLOSED;
	}
	LWLockRelease(le_shmem_lock());
	return lapsed;
}

/*
 * A committed term is the only one of its election: the places of all others
 * are freed with it, be it that they lapsed or that somebody has removed their
 * row by hand.  Nothing is done for a term that its own transaction has let
 * lapse or has ended.
 */
void
le_place_open(const LeKey *key, XLogRecPtr confirm_at)
{
	LePlace    *mine;

	LWLockAcquire(le_shmem_lock(), LW_EXCLUSIVE);
	mine = find(key);
	if (mine && mine->state == LE_PLACE_PENDING)
	{
		int		   *link = bucket_of(key->rel, key->election);

		mine->confirm_at = confirm_at;
		mine->state = LE_PLACE_OPEN;
		if (mine->ttl > 0 && XLogRecPtrIsInvalid(confirm_at) &&
			le_standby_defined())
			le_quorum_acknowledged((int64) pg_atomic_read_u64(&mine->deadline) -
								   mine->ttl);
		while (*link >= 0)
		{
			LePlace    *place = le_shmem_place(*link);

			if (place != mine && same_election(place, key))
				free_at(link);
			else
				link = &place->next;
		}
	}
	LWLockRelease(le_shmem_lock());
}

/* Changes the state of a place that is in another one. */
static void
flip(const LeKey *key, LePlaceState from, LePlaceState to)
{
	LePlace    *place;

	LWLockAcquire(le_shmem_lock(), LW_EXCLUSIVE);
	place = find(key);
	if (place && place->state == from)
		place->state = to;
	LWLockRelease(le_shmem_lock());
}

void
le_place_closing(const LeKey *key)
{
	flip(key, LE_PLACE_OPEN, LE_PLACE_CLOSING);
}

void
le_place_reopen(const LeKey *key)
{
	flip(key, LE_PLACE_CLOSING, LE_PLACE_OPEN);
}

void
le_place_free(const LeKey *key)
{
	int		   *link;

	LWLockAcquire(le_shmem_lock(), LW_EXCLUSIVE);
	link = find_link(key);
	if (*link >= 0)
		free_at(link);
	LWLockRelease(le_shmem_lock());
}

void
le_place_configure(const LeKey *key, const char *owner, int64 lock_delay)
{
	LePlace    *place;

	LWLockAcquire(le_shmem_lock(), LW_EXCLUSIVE);
	place = find(key);
	if (place && owner)
		strlcpy(place->owner, owner, NAMEDATALEN);
	if (place && lock_delay >= 0)
		place->lock_delay = lock_delay;
	LWLockRelease(le_shmem_lock());
}

/* Is it a place of that installation? */
static bool
is_of(const LePlace *place, Oid rel)
{
	return place->state != LE_PLACE_FREE &&
		place->database == MyDatabaseId && place->rel == rel;
}

/* ... and of that holder? */
static bool
is_holders(const LePlace *place, Oid rel, const char *holder)
{
	return is_of(place, rel) && strcmp(place->holder, holder) == 0;
}

/* Notes the places of a list's holder, as far as there is room; all count. */
static int
collect(LePlaceList *list, int room)
{
	int			count = 0;
	int			index;

	(void) lock_shared();
	index = *holders_bucket(MyDatabaseId, list->rel, list->holder);
	while (index >= 0)
	{
		const LePlace *place = le_shmem_place(index);

		if (is_holders(place, list->rel, list->holder))
		{
			if (count < room)
			{
				list->refs[count].index = index;
				list->refs[count].epoch = place->epoch;
			}
			count++;
		}
		index = place->holder_next;
	}
	LWLockRelease(le_shmem_lock());
	return count;
}

LePlaceList *
le_place_list(Oid rel, const char *holder)
{
	LePlaceList *list = palloc(sizeof(LePlaceList));
	int			room = PLACES_AT_FIRST;

	list->rel = rel;
	list->holder = holder;
	list->refs = palloc(room * sizeof(LePlaceRef));
	while ((list->left = collect(list, room)) > room)
	{
		/* A few more may come before we look again. */
		room = list->left + PLACES_AT_FIRST;
		list->refs = repalloc(list->refs, room * sizeof(LePlaceRef));
	}
	return list;
}

/* Takes one lease of the holder's into the batch. */
static void
sweep_place(LePlace *place, LeSweep *sweep, int64 vouched, int64 now)
{
	LeSwept    *swept = &sweep->batch[sweep->count++];

	swept->epoch = place->epoch;
	strlcpy(swept->election, place->election, sizeof(swept->election));
	swept->renewed = !sweep->look_only && is_live(place, now);
	if (swept->renewed)
	{
		swept->left = prolong(place, vouched, now) - now;
		if (sweep->least_ttl == 0 || place->ttl < sweep->least_ttl)
			sweep->least_ttl = place->ttl;
	}
}

bool
le_place_sweep(LeSweep *sweep)
{
	LePlaceList *list = sweep->list;
	int64		now;
	int64		vouched;
	bool		more;

	(void) lock_shared();
	now = le_clock_now();
	vouched = le_quorum_vouched(now);
	sweep->count = 0;
	sweep->least_ttl = 0;
	for (; list->left > 0 && sweep->count < LE_SWEEP_BATCH; list->left--)
	{
		/* Places are listed from the newest on. */
		const LePlaceRef *ref = &list->refs[list->left - 1];
		LePlace    *place = le_shmem_place(ref->index);

		/* A term keeps its holder, so that name is not looked at again. */
		if (place->epoch != ref->epoch || !is_of(place, list->rel) ||
			place->kind != LE_KIND_LEASE)
			continue;
		if (strcmp(place->owner, sweep->owner) != 0)
		{
			strlcpy(sweep->owner, place->owner, NAMEDATALEN);
			break;
		}
		if (sweep->allowed)
			sweep_place(place, sweep, vouched, now);
	}
	sweep->ask = sweep->least_ttl > 0 && le_quorum_due(sweep->least_ttl, now);
	more = sweep->count > 0 || list->left > 0;
	LWLockRelease(le_shmem_lock());
	return more;
}
