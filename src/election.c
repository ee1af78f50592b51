/*-------------------------------------------------------------------------
 *
 * election.c
 *	  How a term begins and ends.
 *
 * A bid looks without a lock first, into memory and then at the row: whoever
 * loses there has cost nothing.  Then come the election's lock in
 * ShareUpdateExclusiveLock, conditionally, as candidates must not queue
 * behind an open transaction of another candidate; the row again, now under
 * the lock; and ExclusiveLock, in the queue, which waits for fenced commits
 * that are under way.  Between the last two the row cannot change, as
 * changing it needs a lock that conflicts with the first. Whoever loses on
 * the way gives its locks back at once.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "change.h"
#include "clock.h"
#include "config.h"
#include "election.h"
#include "epoch.h"
#include "guc.h"
#include "lock.h"
#include "place.h"
#include "renewal.h"
#include "rights.h"
#include "session.h"
#include "standby.h"

/* Between two times of counting what there is, if no limit is near */
#define COUNT_PAUSE			(60 * LE_SECOND)

/* Counts rows for max_elections; see too_many_elections. */
static bool
count_election(const LeElection *election, void *arg)
{
	(*(int *) arg)++;
	return true;
}

/*
 * Would another election be one too many?  Counting takes a scan, so it is done
 * once for the whole database, and what is created since is added.  What is
 * created and rolled back counts as well, so before it is said that there are
 * too many they are counted again; and every minute, as a restored table has
 * rows that were never created.
 */
static bool
too_many_elections(Relation rel)
{
	Oid			relid = RelationGetRelid(rel);
	int			count = 0;

	if (le_shmem_add_election(relid, le_max_elections,
							  le_clock_now() - COUNT_PAUSE))
		return false;
	le_store_scan(rel, count_election, &count);
	le_shmem_counted_elections(relid, count, le_clock_now());
	return count >= le_max_elections;
}

void
le_election_require(const LeRelations *relations, Relation rel,
					const char *election, const LeElection *row)
{
	if (row->exists)
	{
		le_rights_require(row->owner, election);
		return;
	}
	le_rights_require_create(relations->epoch, election);
	if (too_many_elections(rel))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many elections in this database"),
				 errhint("Raise leader_election.max_elections, or use the names that exist.")));
}

static void
refuse_external(const LeElection *row)
{
	if (row->kind == LE_KIND_EXTERNAL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("election \"%s\" is external", row->election),
				 errdetail("Its leader is elected elsewhere; here its tokens are only checked.")));
}

/* Everything that can be refused before anything is changed. */
static void
check_grantable(const LeRelations *relations, Relation rel, const LeBid *bid,
				const LeView *view)
{
	le_election_require(relations, rel, bid->election, &view->row);
	refuse_external(&view->row);
	if (le_require_sync_standby && !le_standby_defined())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("no leadership is granted without a synchronous standby"),
				 errdetail("leader_election.require_sync_standby is on, and synchronous_standby_names is empty.")));
}

/* By which TTL a candidate hurries, where no lease says it */
static int64
hurry(const LeBid *bid)
{
	return bid->ttl > 0 ? bid->ttl : le_default_ttl_ms * LE_MS;
}

static void
read_config(const LeRelations *relations, const char *election,
			LeConfig *config)
{
	Relation	rel = le_config_open(relations->config, AccessShareLock);

	le_config_read(rel, election, config);
	table_close(rel, AccessShareLock);
}

/*
 * How long an election that nobody leads is kept from that bidder all the same:
 * LE_FOREVER while it is paused, 0 if it is not.
 */
static int64
kept_back(const LeConfig *config, const LeView *view, const LeBid *bid)
{
	bool		ran_out = view->standing == LE_STANDING_LAPSED &&
		!view->session_ended && view->now >= view->deadline;

	if (config->paused)
		return LE_FOREVER;
	if (!ran_out || strcmp(view->row.holder, bid->holder) == 0)
		return 0;
	return le_clock_left(view->deadline + config->lock_delay, view->now);
}

static void
answer_kept_back(LeAnswer *answer, const LeView *view, const LeBid *bid,
				 int64 kept)
{
	le_answer_other(answer, view, hurry(bid));
	answer->kept_back = kept;
}

static void
add_history(const LeRelations *relations, const LeElection *row,
			TimestampTz ended_at, const char *reason)
{
	Relation	rel;

	if (!le_history)
		return;
	rel = le_history_open(relations->history, RowExclusiveLock);
	le_store_add_history(rel, row, ended_at, reason);
	table_close(rel, NoLock);
}

void
le_election_end(const LeRelations *relations, const LeView *view,
				TimestampTz now, const char *reason)
{
	TimestampTz ended_at;
	const char *lapsed = le_view_end(view, now, &ended_at);

	add_history(relations, &view->row, ended_at, lapsed ? lapsed : reason);
}

/* Most terms are of the length that was asked for. */
static int64
ttl_of_term(const LeBid *bid, const LeConfig *config)
{
	if (bid->ttl > 0 || bid->kind == LE_KIND_SESSION)
		return bid->ttl;
	return config->ttl > 0 ? config->ttl : le_default_ttl_ms * LE_MS;
}

/* Too many of them pause the election; this one is still granted. */
static void
count_takeover(const LeRelations *relations, const char *election,
			   LeConfig *config, TimestampTz now)
{
	Relation	rel;

	if (!le_config_count_takeover(config, now))
		return;
	rel = le_config_open(relations->config, RowExclusiveLock);
	le_config_write(rel, election, config);
	table_close(rel, NoLock);
}

/*
 * Writes the new term.  The election is locked in ExclusiveLock, and the row
 * in view was read under a lock that kept it as it is.
 */
static void
grant(const LeRelations *relations, Relation rel, const LeBid *bid,
	  const LeView *view, LeConfig *config, LeAnswer *answer)
{
	LeElection	row = view->row;
	LeKey		key = {relations->state, bid->election, 0};
	int64		now;
	int64		deadline;
	int64		until;

	key.epoch = row.epoch = le_epoch_draw(relations, view->row.epoch);
	row.held = true;
	row.kind = bid->kind;
	row.ttl = ttl_of_term(bid, config);
	row.terms++;
	row.acquired_at = GetCurrentTimestamp();
	strlcpy(row.election, bid->election, sizeof(row.election));
	strlcpy(row.holder, bid->holder, sizeof(row.holder));
	if (!row.exists)
		strlcpy(row.owner, GetUserNameFromId(GetUserId(), false), NAMEDATALEN);

	/* Noted before it is made: the end of the transaction unmakes it. */
	now = le_clock_now();
	deadline = row.ttl > 0 ? now + row.ttl : LE_FOREVER;
	until = Min(deadline, now + LE_CHANGE_LIMIT_ACQUIRE);
	if (view->row.held)
	{
		LeKey		old = {relations->state, bid->election, view->row.epoch};

		le_change_note(LE_CHANGE_REPLACED, &old, until);
		le_election_end(relations, view, row.acquired_at, NULL);
		count_takeover(relations, bid->election, config, row.acquired_at);
	}
	if (row.exists)
		le_change_note(LE_CHANGE_BEGUN, &key, until);
	else
		le_change_created(LE_CHANGE_BEGUN, &key, until);
	if (row.kind == LE_KIND_SESSION)
		le_session_take(&key, row.ttl);
	le_renewal_make_place(&key, &row, config->lock_delay, LE_PLACE_PENDING,
						  deadline);
	le_store_write(rel, &row);
	if (bid->has_metadata)
	{
		Relation	metadata = le_metadata_open(relations->metadata,
												RowExclusiveLock);

		le_store_set_metadata(metadata, &key, bid->metadata, false);
		table_close(metadata, NoLock);
	}
	le_answer_leader(answer, row.epoch, row.holder, row.ttl,
					 le_clock_left(deadline, le_clock_now()));
	answer->granted = true;
}

bool
le_election_lock_free(Oid state, const char *election, const LeElection *row)
{
	LeKey		old = {state, election, row->epoch};

	if (!le_lock_change(state, election))
		return false;
	if (!row->held ||
		le_place_close_lapsed(&old, row->ttl,
							  row->kind == LE_KIND_SESSION &&
							  !le_session_alive(&old)))
		return true;
	le_lock_change_release(state, election);
	return false;
}

/*
 * The caller holds the election's lock in ShareUpdateExclusiveLock.  True if
 * the term was granted: then that lock and the stronger ones stay.
 */
static bool
grant_under_lock(const LeRelations *relations, const LeBid *bid,
				 LeView *view, LeAnswer *answer)
{
	Relation	rel = le_state_open(relations->state, RowExclusiveLock);
	LeConfig	config;
	bool		granted = false;
	int64		kept = 0;

	le_view_read(rel, bid->election, view);
	if (!le_view_is_held(view))
	{
		check_grantable(relations, rel, bid, view);
		read_config(relations, bid->election, &config);
		kept = kept_back(&config, view, bid);
		granted = kept == 0 &&
			le_election_lock_free(relations->state, bid->election, &view->row);
	}
	if (granted)
		grant(relations, rel, bid, view, &config, answer);
	else if (kept > 0)
		answer_kept_back(answer, view, bid, kept);
	else
	{
		le_answer_other(answer, view, hurry(bid));
		if (!le_view_is_held(view))
			answer->busy = true;
	}
	table_close(rel, granted ? NoLock : RowExclusiveLock);
	return granted;
}

/*
 * Is the term the bidder's own?  A name is enough for a lease; a session term
 * is its session's.
 */
static bool
is_own(const LeBid *bid, const LeKey *key, char kind, const char *holder)
{
	return kind == bid->kind && strcmp(holder, bid->holder) == 0 &&
		(kind != LE_KIND_SESSION || le_session_mine(key));
}

/*
 * Most bids meet a live term, their own or another's.  Its place says all that
 * there is to say; it is open only while the row names the term, but for an
 * end that this transaction has made itself.
 */
static bool
answer_from_memory(const LeRelations *relations, const LeBid *bid,
				   LeAnswer *answer)
{
	LeKey		key = {relations->state, bid->election, 0};
	LePlaceInfo info;

	if (!le_place_look_live(&key, &info) || le_change_ended(&key))
		return false;
	le_rights_require(info.owner, bid->election);
	if (!is_own(bid, &key, info.kind, info.holder))
	{
		if (info.kind == LE_KIND_SESSION && !le_session_alive(&key))
			return false;
		le_answer_held(answer, info.holder, info.kind,
					   info.ttl > 0 ? info.ttl : hurry(bid),
					   le_clock_left(info.deadline, info.now));
		return true;
	}
	if (!le_renewal_try(&key, &info))
		return false;
	le_answer_leader(answer, key.epoch, info.holder, info.ttl,
					 le_clock_left(info.deadline, info.now));
	return true;
}

void
le_election_acquire(const LeRelations *relations, const LeBid *bid,
					LeAnswer *answer)
{
	LeRelations ours = *relations;
	LeLock		lock = le_lock_election(ours.state, bid->election);
	LeKey		key = {ours.state, bid->election, 0};
	Relation	rel;
	LeView		view;
	LeConfig	config;
	int64		kept;

	le_require_primary();
	le_shmem_attach();
	if (answer_from_memory(&ours, bid, answer))
		return;

	rel = le_state_open(ours.state, AccessShareLock);
	le_view_read(rel, bid->election, &view);
	table_close(rel, AccessShareLock);
	if (view.row.exists)
		le_rights_require(view.row.owner, bid->election);
	refuse_external(&view.row);

	key.epoch = view.row.epoch;
	if (view.standing == LE_STANDING_HELD &&
		is_own(bid, &key, view.row.kind, view.row.holder))
	{
		LePlaceInfo info;

		if (le_renewal_try(&key, &info))
		{
			le_answer_leader(answer, key.epoch, info.holder, info.ttl,
							 le_clock_left(info.deadline, info.now));
			return;
		}
		/* It ended just now; the next call will see how. */
		le_answer_other(answer, &view, hurry(bid));
		answer->busy = true;
		return;
	}
	if (le_view_is_held(&view))
	{
		le_answer_other(answer, &view, hurry(bid));
		return;
	}

	read_config(&ours, bid->election, &config);
	kept = kept_back(&config, &view, bid);
	if (kept > 0)
	{
		answer_kept_back(answer, &view, bid, kept);
		return;
	}
	PreventCommandIfReadOnly(bid->kind == LE_KIND_SESSION ?
							 "leader_acquire_session()" : "leader_acquire()");
	if (!le_lock_try(&lock, ShareUpdateExclusiveLock))
	{
		le_answer_other(answer, &view, hurry(bid));
		answer->busy = true;
		return;
	}
	if (!grant_under_lock(&ours, bid, &view, answer))
		le_lock_release(&lock, ShareUpdateExclusiveLock);
}

void
le_election_cannot_lock(const char *election)
{
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("could not lock election \"%s\" in time", election),
			 errdetail("Another transaction is changing the election."),
			 errhint("Try again.")));
}

/*
 * A session that leads writes as the leader without looking at the row, so
 * nobody else may end its term.
 */
static void
require_own_session(const LeKey *key, const LeElection *row)
{
	if (row->kind == LE_KIND_SESSION && !le_session_mine(key) &&
		le_session_alive(key))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("election \"%s\" is led by another session",
						key->election),
				 errhint("Release it in the session that acquired it, or end that session.")));
}

bool
le_election_release(const LeRelations *relations, const LeKey *key)
{
	LeRelations ours = *relations;
	Relation	rel;
	LeElection	row;
	LeView		view;

	le_require_primary();
	le_shmem_attach();
	rel = le_state_open(ours.state, AccessShareLock);
	le_store_read(rel, key->election, &row);
	table_close(rel, AccessShareLock);
	if (row.exists)
		le_rights_require(row.owner, key->election);
	if (!row.held || row.epoch != key->epoch)
		return false;
	require_own_session(key, &row);
	PreventCommandIfReadOnly("leader_release()");

	if (!le_lock_change(ours.state, key->election))
		le_election_cannot_lock(key->election);
	rel = le_state_open(ours.state, RowExclusiveLock);
	le_view_read(rel, key->election, &view);
	if (!view.row.held || view.row.epoch != key->epoch)
	{
		table_close(rel, RowExclusiveLock);
		le_lock_change_release(ours.state, key->election);
		return false;
	}
	require_own_session(key, &view.row);
	le_change_note(LE_CHANGE_ENDED, key, le_clock_now() + LE_CHANGE_LIMIT);
	le_election_end(&ours, &view, GetCurrentTimestamp(), "released");
	view.row.held = false;
	le_store_write(rel, &view.row);
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
	if (!le_renewal_check(key))
		return false;
	PreventCommandIfReadOnly("leader_set_metadata()");
	if (!le_lock_queue(&lock, ShareUpdateExclusiveLock))
		le_election_cannot_lock(key->election);
	rel = le_state_open(ours.state, AccessShareLock);
	le_view_read(rel, key->election, &view);
	table_close(rel, AccessShareLock);
	if (view.row.epoch != key->epoch || view.standing != LE_STANDING_HELD)
	{
		le_lock_release(&lock, ShareUpdateExclusiveLock);
		return false;
	}
	le_change_note(LE_CHANGE_OTHER, key, le_clock_now() + LE_CHANGE_LIMIT);
	rel = le_metadata_open(ours.metadata, RowExclusiveLock);
	le_store_set_metadata(rel, key, value, isnull);
	table_close(rel, NoLock);
	return true;
}
