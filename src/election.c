/*-------------------------------------------------------------------------
 *
 * election.c
 *	  Who leads, and how a term begins, goes on and ends.
 *
 * The row says who holds an election, memory says until when; le_election_view
 * puts the two together, and nothing else does.
 *
 * A bid looks without a lock first: whoever loses there has cost nothing.
 * Then come the election's lock in ShareUpdateExclusiveLock, conditionally, as
 * candidates must not queue behind an open transaction of another candidate;
 * the row again, now under the lock; and ExclusiveLock, in the queue, which
 * waits for fenced commits that are under way.  Between the last two the row
 * cannot change, as changing it needs a lock that conflicts with the first.
 * Whoever loses on the way gives its locks back at once.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "storage/condition_variable.h"
#include "utils/acl.h"
#include "utils/timestamp.h"

#include "change.h"
#include "clock.h"
#include "compat.h"
#include "election.h"
#include "epoch.h"
#include "guc.h"
#include "lock.h"
#include "place.h"
#include "rights.h"

/* How long a renewal that must read the row waits for one who changes it */
#define RECLAIM_WAIT		(5 * LE_SECOND)
/* Between two bids of a waiting call that met somebody at work */
#define BUSY_PAUSE_FIRST	(2 * LE_MS)
#define BUSY_PAUSE_LAST		(50 * LE_MS)
/* How long a renewal waits to see what becomes of an end in the making */
#define CLOSING_WAIT		(100 * LE_MS)
#define CLOSING_PAUSE_US	(1 * LE_MS)

void
le_election_judge(Oid rel, LeView *view)
{
	LePlaceInfo place;
	LeKey		key = {rel, view->row.election, view->row.epoch};

	view->unconfirmed = view->forgotten = false;
	if (!view->row.held)
	{
		view->standing = LE_STANDING_FREE;
		view->now = view->deadline = 0;
		return;
	}

	le_place_look(&key, &place);
	view->now = place.now;
	view->forgotten = !place.found;
	view->deadline = place.found ? place.deadline : place.start + view->row.ttl;
	view->unconfirmed = place.state == LE_PLACE_OPEN && !place.confirmed;
	if (view->now >= view->deadline || place.state == LE_PLACE_CLOSED)
		view->standing = LE_STANDING_LAPSED;
	else if (!place.found || (place.state == LE_PLACE_OPEN && place.confirmed))
		view->standing = LE_STANDING_HELD;
	else if (place.state == LE_PLACE_PENDING && le_change_begun(&key))
		view->standing = LE_STANDING_HELD;
	else
		view->standing = LE_STANDING_UNCERTAIN;
}

void
le_election_view(Relation rel, const char *election, LeView *view)
{
	le_store_read(rel, election, &view->row);
	le_election_judge(RelationGetRelid(rel), view);
}

static bool
is_held(const LeView *view)
{
	return view->standing == LE_STANDING_HELD ||
		view->standing == LE_STANDING_UNCERTAIN;
}

/* The answer to everybody who does not lead. */
static void
answer_other(LeAnswer *answer, const LeView *view, int64 ttl)
{
	memset(answer, 0, sizeof(LeAnswer));
	answer->ttl = ttl;
	answer->left = -1;
	if (is_held(view))
	{
		answer->ttl = view->row.ttl;
		answer->left = Max(view->deadline - view->now, 0);
		strlcpy(answer->leader, view->row.holder, sizeof(answer->leader));
		answer->busy = view->standing == LE_STANDING_UNCERTAIN;
	}
}

static void
answer_leader(LeAnswer *answer, int64 epoch, const char *holder, int64 ttl,
			  int64 left)
{
	memset(answer, 0, sizeof(LeAnswer));
	answer->is_leader = true;
	answer->epoch = epoch;
	answer->ttl = ttl;
	answer->left = Max(left, 0);
	strlcpy(answer->leader, holder, sizeof(answer->leader));
}

static void
make_place(const LeKey *key, const LeElection *row, LePlaceState state,
		   int64 deadline)
{
	if (!le_place_make(key, row, state, deadline))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("no room for another live lease"),
				 errhint("Raise leader_election.max_leases and restart the server.")));
}

/*
 * The first renewal after a restart: gives a held term its place again.  The
 * row is read under the lock that a takeover conflicts with, or a term that
 * is being replaced would come back to life.  False if the row no longer names
 * the term, its time after the restart has run out, or somebody is changing it.
 */
static bool
reclaim(const LeRelations *relations, const LeKey *key)
{
	LeLock		lock = le_lock_election(relations->state, key->election);
	Relation	rel;
	LeView		view;
	bool		alive;

	if (le_lock_poll(&lock, RowShareLock, le_clock_now() + RECLAIM_WAIT) != NULL)
		return false;
	rel = le_state_open(key->rel, AccessShareLock);
	le_election_view(rel, key->election, &view);
	table_close(rel, AccessShareLock);
	alive = view.row.held && view.row.epoch == key->epoch &&
		view.row.kind == LE_KIND_LEASE && view.standing == LE_STANDING_HELD;
	if (alive && view.forgotten)
		make_place(key, &view.row, LE_PLACE_OPEN, view.deadline);
	le_lock_release(&lock, RowShareLock);
	return alive;
}

/*
 * Renews a term that has a place.  An end that is just being committed is
 * waited for: the answer would be wrong if that commit failed.
 */
static bool
renew_place(const LeKey *key, LePlaceInfo *info)
{
	int64		until = le_clock_now() + CLOSING_WAIT;

	for (;;)
	{
		if (le_change_ended(key))
		{
			le_place_look(key, info);
			return false;
		}
		if (le_place_renew(key, info))
			return true;
		if (info->found && info->state == LE_PLACE_PENDING &&
			le_change_begun(key))
			return info->now < info->deadline;
		if (!info->found || info->state != LE_PLACE_CLOSING ||
			info->now >= until)
			return false;
		CHECK_FOR_INTERRUPTS();
		pg_usleep(CLOSING_PAUSE_US);
	}
}

/* Tries to renew by memory, and by the row if a restart has forgotten it. */
static bool
renew(const LeRelations *relations, const LeKey *key, LePlaceInfo *info)
{
	if (renew_place(key, info))
		return true;
	return !info->found && reclaim(relations, key) && renew_place(key, info);
}

void
le_election_renew(const LeRelations *relations, const LeKey *key,
				  LeAnswer *answer)
{
	LePlaceInfo info;
	LeView		view;
	Relation	rel;
	LeRelations ours = *relations;

	le_require_primary();
	le_shmem_attach();
	le_place_look(key, &info);
	if (info.found)
		le_rights_require(info.owner, key->election);
	if (!info.found || !renew_place(key, &info))
	{
		/* Not led, or forgotten: the row tells which, and who leads. */
		rel = le_state_open(key->rel, AccessShareLock);
		le_election_view(rel, key->election, &view);
		table_close(rel, AccessShareLock);
		if (view.row.exists)
			le_rights_require(view.row.owner, key->election);
		if (!view.row.held || view.row.epoch != key->epoch ||
			!view.forgotten || view.standing != LE_STANDING_HELD ||
			!renew(&ours, key, &info))
		{
			answer_other(answer, &view,
						 view.row.exists ? view.row.ttl :
						 le_default_ttl_ms * LE_MS);
			return;
		}
	}
	answer_leader(answer, key->epoch, info.holder, info.ttl,
				  info.deadline - info.now);
}

/* Counts rows for max_elections; see too_many_elections. */
static bool
count_election(const LeElection *election, void *arg)
{
	(*(int *) arg)++;
	return true;
}

/*
 * Would another election be one too many?  Counting takes a scan, so a
 * backend counts at most once a second, and adds what it created since.  It
 * does not see what others create meanwhile: the limit keeps a flood away, it
 * is not exact.
 */
static bool
too_many_elections(Relation rel)
{
	static Oid	counted_rel = InvalidOid;
	static int64 counted_at = 0;
	static int	count = 0;
	int64		now = le_clock_now();

	if (counted_rel != RelationGetRelid(rel) || count >= le_max_elections ||
		now - counted_at > LE_SECOND)
	{
		count = 0;
		le_store_scan(rel, count_election, &count);
		counted_rel = RelationGetRelid(rel);
		counted_at = now;
	}
	return count++ >= le_max_elections;
}

/* Everything that can be refused before anything is changed. */
static void
check_grantable(const LeRelations *relations, Relation rel, const LeBid *bid,
				const LeView *view)
{
	le_require_writable();
	if (view->row.exists)
		le_rights_require(view->row.owner, bid->election);
	else
	{
		le_rights_require_create(relations->epoch, bid->election);
		if (too_many_elections(rel))
			ereport(ERROR,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("too many elections in this database"),
					 errhint("Drop elections that are not needed, or raise leader_election.max_elections.")));
	}
	if (le_require_sync_standby && !le_sync_standbys_defined())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("no leadership is granted without a synchronous standby"),
				 errdetail("leader_election.require_sync_standby is on, and synchronous_standby_names is empty.")));
}

/*
 * Writes the new term.  The election is locked in ExclusiveLock, and the row
 * in view was read under a lock that kept it as it is.
 */
static void
grant(const LeRelations *relations, Relation rel, const LeBid *bid,
	  const LeView *view, LeAnswer *answer)
{
	LeElection	row = view->row;
	LeKey		key = {relations->state, bid->election, 0};
	int64		now;

	key.epoch = row.epoch = le_epoch_draw(relations, view->row.epoch);
	row.held = true;
	row.kind = LE_KIND_LEASE;
	row.ttl = bid->ttl;
	row.terms++;
	row.acquired_at = GetCurrentTimestamp();
	strlcpy(row.election, bid->election, sizeof(row.election));
	strlcpy(row.holder, bid->holder, sizeof(row.holder));
	if (!row.exists)
		strlcpy(row.owner, GetUserNameFromId(GetUserId(), false), NAMEDATALEN);

	/* Noted before it is made: the end of the transaction unmakes it. */
	now = le_clock_now();
	le_change_note(LE_CHANGE_BEGUN, &key,
				   now + Min(row.ttl, LE_CHANGE_LIMIT_ACQUIRE));
	make_place(&key, &row, LE_PLACE_PENDING, now + row.ttl);
	le_store_write(rel, &row);
	if (bid->has_metadata)
	{
		Relation	metadata = le_metadata_open(relations->metadata,
												RowExclusiveLock);

		le_store_set_metadata(metadata, &key, bid->metadata, false);
		table_close(metadata, NoLock);
	}
	answer_leader(answer, row.epoch, row.holder, row.ttl,
				  now + row.ttl - le_clock_now());
	answer->granted = true;
}

/*
 * The caller holds the election's lock in ShareUpdateExclusiveLock.  True if
 * the term was granted: then that lock and the stronger ones stay.
 */
static bool
grant_under_lock(const LeRelations *relations, const LeBid *bid,
				 LeView *view, LeAnswer *answer)
{
	Oid			state = relations->state;
	Relation	rel = le_state_open(state, RowExclusiveLock);
	bool		granted = false;

	le_election_view(rel, bid->election, view);
	if (is_held(view))
		answer_other(answer, view, bid->ttl);
	else
	{
		check_grantable(relations, rel, bid, view);
		if (!le_lock_change(state, bid->election))
		{
			answer_other(answer, view, bid->ttl);
			answer->busy = true;
		}
		else
		{
			LeKey		old = {state, bid->election, view->row.epoch};

			granted = !view->row.held ||
				le_place_close_lapsed(&old, view->row.ttl);
			if (granted)
				grant(relations, rel, bid, view, answer);
			else
			{
				answer_other(answer, view, bid->ttl);
				answer->busy = true;
				le_lock_change_release(state, bid->election);
			}
		}
	}
	table_close(rel, granted ? NoLock : RowExclusiveLock);
	return granted;
}

void
le_election_acquire(const LeRelations *relations, const LeBid *bid,
					LeAnswer *answer)
{
	LeRelations ours = *relations;
	LeLock		lock = le_lock_election(ours.state, bid->election);
	Relation	rel;
	LeView		view;

	le_require_primary();
	le_shmem_attach();

	rel = le_state_open(ours.state, AccessShareLock);
	le_election_view(rel, bid->election, &view);
	table_close(rel, AccessShareLock);
	if (view.row.exists)
		le_rights_require(view.row.owner, bid->election);

	if (view.standing == LE_STANDING_HELD &&
		view.row.kind == LE_KIND_LEASE &&
		strcmp(view.row.holder, bid->holder) == 0)
	{
		LeKey		key = {ours.state, bid->election, view.row.epoch};
		LePlaceInfo info;

		if (renew(&ours, &key, &info))
		{
			answer_leader(answer, key.epoch, info.holder, info.ttl,
						  info.deadline - info.now);
			return;
		}
		/* It ended just now; the next call will see how. */
		answer_other(answer, &view, bid->ttl);
		answer->busy = true;
		return;
	}
	if (is_held(&view))
	{
		answer_other(answer, &view, bid->ttl);
		return;
	}

	le_require_writable();
	if (!le_lock_try(&lock, ShareUpdateExclusiveLock))
	{
		answer_other(answer, &view, bid->ttl);
		answer->busy = true;
		return;
	}
	if (!grant_under_lock(&ours, bid, &view, answer))
		le_lock_release(&lock, ShareUpdateExclusiveLock);
}

void
le_election_acquire_wait(const LeRelations *relations, const LeBid *bid,
						 int64 until, LeAnswer *answer)
{
	static uint32 wait_event = 0;
	LeRelations ours = *relations;
	int64		busy_pause = BUSY_PAUSE_FIRST;

	if (wait_event == 0)
		wait_event = le_wait_event_new("LeaderElectionAcquire");
	le_require_primary();
	le_shmem_attach();
	for (;;)
	{
		int64		pause;

		/* Before the look, or an end that comes after it would wake nobody. */
		ConditionVariablePrepareToSleep(le_shmem_ended());
		le_election_acquire(&ours, bid, answer);
		if (answer->is_leader || le_clock_now() >= until)
			break;
		pause = answer->busy || answer->left < 0 ? busy_pause : answer->left;
		busy_pause = answer->busy ? Min(busy_pause * 2, BUSY_PAUSE_LAST) :
			BUSY_PAUSE_FIRST;
		(void) ConditionVariableTimedSleep(le_shmem_ended(),
										   le_clock_ms_until(Min(le_clock_now() + pause,
																 until)),
										   wait_event);
	}
	ConditionVariableCancelSleep();
}

/* What a scan for a holder's forgotten leases collects */
typedef struct Forgotten
{
	const LeRelations *relations;
	const char *holder;
	List	   *keys;			/* of LeKey */
} Forgotten;

static bool
collect_forgotten(const LeElection *election, void *arg)
{
	Forgotten  *forgotten = arg;
	LeView		view;

	if (election->held && election->kind == LE_KIND_LEASE &&
		strcmp(election->holder, forgotten->holder) == 0)
	{
		view.row = *election;
		le_election_judge(forgotten->relations->state, &view);
		if (view.forgotten && view.standing == LE_STANDING_HELD &&
			le_rights_has(election->owner))
		{
			LeKey	   *key = palloc(sizeof(LeKey));

			key->rel = forgotten->relations->state;
			key->election = pstrdup(election->election);
			key->epoch = election->epoch;
			forgotten->keys = lappend(forgotten->keys, key);
		}
	}
	return true;
}

/*
 * Gives the places back that a restart has taken from a holder's leases.  A
 * lease without a place ends at the latest one longest TTL after the start, so
 * later there is nothing to scan for; nor when this backend did it before for
 * the same holder and user and met nobody at work.
 */
static void
reclaim_all(const LeRelations *relations, const char *holder)
{
	static struct
	{
		Oid			rel;
		Oid			user;
		int64		start;
		char		holder[LE_NAME_MAX + 1];
	}			done;
	Forgotten	forgotten = {relations, holder, NIL};
	LeKey		nobody = {relations->state, "", 0};
	LePlaceInfo info;
	Relation	rel;
	ListCell   *lc;
	bool		all = true;

	le_place_look(&nobody, &info);
	if (info.now - info.start > LE_TTL_MAX ||
		(done.rel == relations->state && done.user == GetUserId() &&
		 done.start == info.start && strcmp(done.holder, holder) == 0))
		return;

	rel = le_state_open(relations->state, AccessShareLock);
	le_store_scan(rel, collect_forgotten, &forgotten);
	table_close(rel, AccessShareLock);
	foreach(lc, forgotten.keys)
		all &= reclaim(relations, lfirst(lc));
	if (all)
	{
		done.rel = relations->state;
		done.user = GetUserId();
		done.start = info.start;
		strlcpy(done.holder, holder, sizeof(done.holder));
	}
}

void
le_election_renew_all(const LeRelations *relations, const char *holder,
					  LeTell tell, void *arg)
{
	LeRelations ours = *relations;
	LePlaceInfo info;
	int			cursor = 0;

	le_require_primary();
	le_shmem_attach();
	reclaim_all(&ours, holder);
	while (le_place_next(ours.state, holder, &cursor, &info))
	{
		LeKey		key = {ours.state, info.election, info.epoch};
		LePlaceInfo renewed;

		if (info.kind == LE_KIND_LEASE && le_rights_has(info.owner) &&
			renew_place(&key, &renewed))
			tell(info.election, info.epoch, renewed.deadline - renewed.now, arg);
	}
}

bool
le_election_check(const LeRelations *relations, const LeKey *key)
{
	LePlaceInfo info;
	LeView		view;
	Relation	rel;

	le_require_primary();
	le_shmem_attach();
	le_place_look(key, &info);
	if (info.found)
	{
		le_rights_require(info.owner, key->election);
		if (le_change_ended(key) || info.now >= info.deadline)
			return false;
		return (info.state == LE_PLACE_OPEN && info.confirmed) ||
			(info.state == LE_PLACE_PENDING && le_change_begun(key));
	}

	rel = le_state_open(key->rel, AccessShareLock);
	le_election_view(rel, key->election, &view);
	table_close(rel, AccessShareLock);
	if (view.row.exists)
		le_rights_require(view.row.owner, key->election);
	return view.row.epoch == key->epoch && view.standing == LE_STANDING_HELD;
}

static void
cannot_lock(const char *election)
{
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("could not lock election \"%s\" in time", election),
			 errdetail("Another transaction is changing the election."),
			 errhint("Try again.")));
}

bool
le_election_release(const LeRelations *relations, const LeKey *key)
{
	LeRelations ours = *relations;
	Relation	rel;
	LeElection	row;

	le_require_primary();
	le_shmem_attach();
	rel = le_state_open(ours.state, AccessShareLock);
	le_store_read(rel, key->election, &row);
	table_close(rel, AccessShareLock);
	if (row.exists)
		le_rights_require(row.owner, key->election);
	if (!row.held || row.epoch != key->epoch)
		return false;
	le_require_writable();

	if (!le_lock_change(ours.state, key->election))
		cannot_lock(key->election);
	rel = le_state_open(ours.state, RowExclusiveLock);
	le_store_read(rel, key->election, &row);
	if (!row.held || row.epoch != key->epoch)
	{
		table_close(rel, RowExclusiveLock);
		le_lock_change_release(ours.state, key->election);
		return false;
	}
	row.held = false;
	le_change_note(LE_CHANGE_ENDED, key, le_clock_now() + LE_CHANGE_LIMIT);
	le_store_write(rel, &row);
	table_close(rel, NoLock);
	return true;
}

bool
le_election_set_metadata(const LeRelations *relations, const LeKey *key,
						 Datum value, bool isnull)
{
	LeRelations ours = *relations;
	LeLock		lock = le_lock_election(ours.state, key->election);
	Relation	rel;
	LeView		view;

	/* The lease is looked at before, without the lock: a loser waits not. */
	if (!le_election_check(&ours, key))
		return false;
	le_require_writable();
	if (!le_lock_queue(&lock, ShareUpdateExclusiveLock))
		cannot_lock(key->election);
	rel = le_state_open(ours.state, AccessShareLock);
	le_election_view(rel, key->election, &view);
	table_close(rel, AccessShareLock);
	if (view.row.epoch != key->epoch || view.standing != LE_STANDING_HELD)
	{
		le_lock_release(&lock, ShareUpdateExclusiveLock);
		return false;
	}
	le_change_note(LE_CHANGE_METADATA, key, le_clock_now() + LE_CHANGE_LIMIT);
	rel = le_metadata_open(ours.metadata, RowExclusiveLock);
	le_store_set_metadata(rel, key, value, isnull);
	table_close(rel, NoLock);
	return true;
}
