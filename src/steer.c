/*-------------------------------------------------------------------------
 *
 * steer.c
 *	  What an operator does to an election: depose its leader, drop it, and
 *	  prune its history.
 *
 * To depose draws an epoch that nobody gets: it makes that of the leader stale
 * here, and wherever else it is presented.
 *
 * A session that leads without a TTL passes the fence by its own lock, and
 * reads no row.  So it is ended first, and its term's lock taken over, before
 * the row is changed: no commit of that session can slip through.  Meanwhile
 * the election is locked in ShareUpdateExclusiveLock, which keeps candidates
 * from a takeover, and nobody from committing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "miscadmin.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "arguments.h"
#include "change.h"
#include "clock.h"
#include "election.h"
#include "epoch.h"
#include "history.h"
#include "lock.h"
#include "names.h"
#include "relations.h"
#include "rights.h"
#include "row.h"
#include "session.h"
#include "shmem.h"

/* How long the end of a session is waited for */
#define END_LIMIT			(10 * LE_SECOND)

/* A history that long has not been written */
#define MAX_AGE_DAYS		365000

PG_FUNCTION_INFO_V1(le_leader_depose);
PG_FUNCTION_INFO_V1(le_leader_drop);
PG_FUNCTION_INFO_V1(le_leader_prune);

/* Reads the row without a lock, for one who has the rights (else 42501). */
static void
read_row(const LeRelations *relations, const char *election, LeElection *row)
{
	Relation	rel = le_state_open(relations->state, AccessShareLock);

	le_store_read(rel, election, row);
	table_close(rel, AccessShareLock);
	if (row->exists)
		le_rights_require(row->owner, election);
}

static void
end_other_session(const LeKey *key, const LeElection *row)
{
	if (row->kind != LE_KIND_SESSION || row->ttl > 0 ||
		le_session_mine(key) || !le_session_alive(key))
		return;
	if (!le_session_end(key, le_clock_now() + END_LIMIT))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not end the session that leads election \"%s\" in time",
						key->election),
				 errhint("Try again.")));
}

/* The caller holds ShareUpdateExclusiveLock; 0 if nobody led. */
static int64
depose(const LeRelations *relations, const char *election)
{
	Relation	rel = le_state_open(relations->state, RowExclusiveLock);
	LeKey		key = {relations->state, election, 0};
	LeView		view;

	le_view_read(rel, election, &view);
	if (view.row.exists)
		le_rights_require(view.row.owner, election);
	if (!view.row.held)
	{
		table_close(rel, RowExclusiveLock);
		return 0;
	}
	key.epoch = view.row.epoch;
	end_other_session(&key, &view.row);
	if (!le_lock_change(relations->state, election))
		le_election_cannot_lock(election);
	le_change_note(LE_CHANGE_ENDED, &key, le_clock_now() + LE_CHANGE_LIMIT);
	le_election_end(relations, &view, GetCurrentTimestamp(), "deposed");
	view.row.epoch = le_epoch_draw(relations, view.row.epoch);
	view.row.held = false;
	le_store_write(rel, &view.row);
	table_close(rel, NoLock);
	/* It is told before the commit, and must not be drawn again. */
	le_epoch_flush();
	return view.row.epoch;
}

Datum
le_leader_depose(PG_FUNCTION_ARGS)
{
	LeRelations relations = *le_relations(fcinfo);
	char	   *election = le_arg_name(fcinfo, 0, "election");
	LeLock		lock = le_lock_election(relations.state, election);
	LeElection	row;
	int64		epoch;

	le_require_primary();
	le_shmem_attach();
	read_row(&relations, election, &row);
	if (!row.held)
		PG_RETURN_NULL();
	PreventCommandIfReadOnly("leader_depose()");
	if (!le_lock_queue(&lock, ShareUpdateExclusiveLock))
		le_election_cannot_lock(election);
	epoch = depose(&relations, election);
	if (epoch != 0)
		PG_RETURN_INT64(epoch);
	le_lock_release(&lock, ShareUpdateExclusiveLock);
	PG_RETURN_NULL();
}

/*
 * What an election has in the history; or whoever takes the name next would be
 * shown who led it before.
 */
static void
forget_history(const LeRelations *relations, const char *election)
{
	Relation	rel = le_history_open(relations->history, RowExclusiveLock);
	bool		all = le_history_forget(rel, election);

	table_close(rel, NoLock);
	if (!all)
		le_election_cannot_lock(election);
}

static void
forget_rows(const LeRelations *relations, Relation rel, const char *election)
{
	Relation	metadata = le_metadata_open(relations->metadata,
											RowExclusiveLock);
	Relation	config = le_config_open(relations->config, RowExclusiveLock);

	le_row_delete(rel, election);
	le_row_delete(metadata, election);
	le_row_delete(config, election);
	table_close(config, NoLock);
	table_close(metadata, NoLock);
	forget_history(relations, election);
}

/* The caller holds ShareUpdateExclusiveLock; true if it is to be kept. */
static bool
drop(const LeRelations *relations, const char *election)
{
	Relation	rel = le_state_open(relations->state, RowExclusiveLock);
	int64		until;
	LeKey		key = {relations->state, election, 0};
	LeView		view;

	le_view_read(rel, election, &view);
	if (!view.row.exists)
	{
		table_close(rel, RowExclusiveLock);
		return false;
	}
	le_rights_require(view.row.owner, election);
	if (le_view_is_held(&view))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("election \"%s\" is held", election),
				 errhint("Release it, or call leader_depose() first.")));
	if (!le_election_lock_free(relations->state, election, &view.row))
		le_election_cannot_lock(election);
	until = le_clock_now() + LE_CHANGE_LIMIT;
	key.epoch = view.row.epoch;
	if (view.row.held)
		le_change_note(LE_CHANGE_ENDED, &key, until);
	le_change_note(LE_CHANGE_DROPPED, &key, until);
	forget_rows(relations, rel, election);
	table_close(rel, NoLock);
	return true;
}

Datum
le_leader_drop(PG_FUNCTION_ARGS)
{
	LeRelations relations = *le_relations(fcinfo);
	char	   *election = le_arg_name(fcinfo, 0, "election");
	LeLock		lock = le_lock_election(relations.state, election);
	LeElection	row;

	le_require_primary();
	le_shmem_attach();
	read_row(&relations, election, &row);
	if (!row.exists)
		PG_RETURN_BOOL(false);
	PreventCommandIfReadOnly("leader_drop()");
	/* Most of it before the election is locked: that may take its time. */
	forget_history(&relations, election);
	if (!le_lock_queue(&lock, ShareUpdateExclusiveLock))
		le_election_cannot_lock(election);
	if (drop(&relations, election))
		PG_RETURN_BOOL(true);
	le_lock_release(&lock, ShareUpdateExclusiveLock);
	PG_RETURN_BOOL(false);
}

static bool
collect_steerable(const LeElection *election, void *arg)
{
	List	  **elections = arg;

	if (le_rights_has(election->owner))
		*elections = lappend(*elections, pstrdup(election->election));
	return true;
}

Datum
le_leader_prune(PG_FUNCTION_ARGS)
{
	LeRelations relations = *le_relations(fcinfo);
	List	   *elections = NIL;
	Interval   *age;
	Relation	rel;
	Datum		before;
	int64		deleted;

	le_require_primary();
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("older_than must not be null")));
	age = PG_GETARG_INTERVAL_P(0);
	if (DatumGetBool(DirectFunctionCall2(interval_lt, IntervalPGetDatum(age),
										 IntervalPGetDatum(le_us_to_interval(0)))))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("older_than must not be negative")));
	PreventCommandIfReadOnly("leader_prune()");
	/* There is no timestamp to compare with, and nothing that old. */
	if (age->month > MAX_AGE_DAYS / 30 || age->day > MAX_AGE_DAYS ||
		age->time > MAX_AGE_DAYS * USECS_PER_DAY)
		PG_RETURN_INT64(0);
	before = DirectFunctionCall2(timestamptz_mi_interval,
								 TimestampTzGetDatum(GetCurrentTimestamp()),
								 IntervalPGetDatum(age));
	rel = le_state_open(relations.state, AccessShareLock);
	le_store_scan(rel, collect_steerable, &elections);
	table_close(rel, AccessShareLock);
	le_names_sort(elections);
	rel = le_history_open(relations.history, RowExclusiveLock);
	deleted = le_history_prune(rel, elections, DatumGetTimestampTz(before));
	table_close(rel, NoLock);
	PG_RETURN_INT64(deleted);
}
