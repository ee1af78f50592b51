/*-------------------------------------------------------------------------
 *
 * external.c
 *	  Elections whose tokens come from elsewhere.
 *
 * Such an election has no term here.  Its row keeps a mark instead of an epoch:
 * the highest token that a committed transaction has presented.  That one is
 * current, a lower one is stale, a higher one raises the mark.
 *
 * The mark is raised when the transaction commits, under the locks of any
 * change: not before, so that an idle transaction keeps nobody waiting; and not
 * later, so that whoever commits with a lower token meets either the new mark or
 * the lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "arguments.h"
#include "change.h"
#include "clock.h"
#include "election.h"
#include "external.h"
#include "lock.h"
#include "relations.h"
#include "rights.h"
#include "shmem.h"

PG_FUNCTION_INFO_V1(le_leader_configure);

void
le_external_check_raise(const LeKey *key, const LeElection *row,
						bool from_setting)
{
	/* The commit needs it, and must not fail for want of it. */
	le_shmem_attach();
	le_rights_require(row->owner, key->election);

	/*
	 * A function that runs as another user, or a foreign key's action, does
	 * not lend its rights to a token that it knows nothing of.
	 */
	if (from_setting && !le_rights_has_role(GetOuterUserId(), row->owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for election \"%s\"", key->election),
				 errdetail("The user that presents the token by a setting is not a member of the role that owns the election.")));
	if (key->epoch >= LE_EPOCH_LIMIT)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("token %lld of election \"%s\" is out of range",
						(long long) key->epoch, key->election),
				 errdetail("Tokens lie below %lld, so that every client can represent them.",
						   (long long) LE_EPOCH_LIMIT)));
	if (XactReadOnly)
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot present a higher token of election \"%s\" than before in a read-only transaction",
						key->election),
				 errdetail("The election is external, and the token would be written down.")));
}

void
le_external_raise(const LeKey *key)
{
	Relation	rel;
	LeElection	row;

	le_lock_change_at_commit(key->rel, key->election);
	rel = le_state_open(key->rel, RowExclusiveLock);
	le_store_read(rel, key->election, &row);
	if (row.kind == LE_KIND_EXTERNAL && key->epoch > row.epoch)
	{
		row.epoch = key->epoch;
		row.terms++;
		row.acquired_at = GetCurrentTimestamp();
		le_store_write(rel, &row);
		le_change_note(LE_CHANGE_RAISED, key,
					   le_clock_now() + LE_CHANGE_LIMIT);
	}
	table_close(rel, NoLock);
}

static void
refuse_held(const char *election)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("election \"%s\" is held", election),
			 errdetail("Only a free election can become external.")));
}

/* The caller holds ShareUpdateExclusiveLock; true if it is to be kept. */
static bool
make_external(const LeRelations *relations, const char *election)
{
	Relation	rel = le_state_open(relations->state, RowExclusiveLock);
	int64		until = le_clock_now() + LE_CHANGE_LIMIT;
	LeKey		key = {relations->state, election, 0};
	LeView		view;
	LeElection	row;

	le_view_read(rel, election, &view);
	le_election_require(relations, rel, election, &view.row);
	if (view.row.kind == LE_KIND_EXTERNAL)
	{
		table_close(rel, RowExclusiveLock);
		return false;
	}
	if (le_view_is_held(&view))
		refuse_held(election);
	if (!le_election_lock_free(relations->state, election, &view.row))
		le_election_cannot_lock(election);

	row = view.row;
	row.acquired_at = GetCurrentTimestamp();
	if (row.held)
		le_election_end_lapsed(relations, &view, row.acquired_at, until);
	if (!row.exists)
	{
		strlcpy(row.election, election, sizeof(row.election));
		strlcpy(row.owner, GetUserNameFromId(GetUserId(), false), NAMEDATALEN);
	}
	/* An epoch of its own that has ended is nobody's token, and stays so. */
	if (row.epoch > 0)
		row.epoch++;
	row.held = false;
	row.kind = LE_KIND_EXTERNAL;
	row.ttl = 0;
	key.epoch = row.epoch;
	le_change_note(LE_CHANGE_OTHER, &key, until);
	le_store_write(rel, &row);
	table_close(rel, NoLock);
	return true;
}

static void
refuse_setting(FunctionCallInfo fcinfo)
{
	static const char *const names[] = {
		"ttl", "lock_delay", "failover_limit", "failover_window", "paused",
		"owner"
	};

	for (int i = 0; i < (int) lengthof(names); i++)
	{
		if (!PG_ARGISNULL(i + 1))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("leader_configure() cannot set %s yet", names[i])));
	}
}

Datum
le_leader_configure(PG_FUNCTION_ARGS)
{
	LeRelations relations = *le_relations(fcinfo);
	char	   *election = le_arg_name(fcinfo, 0, "election");
	LeLock		lock = le_lock_election(relations.state, election);
	Relation	rel;
	LeElection	row;

	le_require_primary();
	le_shmem_attach();
	refuse_setting(fcinfo);
	rel = le_state_open(relations.state, AccessShareLock);
	le_store_read(rel, election, &row);
	if (row.exists)
		le_rights_require(row.owner, election);
	table_close(rel, AccessShareLock);
	if (PG_ARGISNULL(7))
		PG_RETURN_VOID();
	if (!PG_GETARG_BOOL(7))
	{
		if (row.kind == LE_KIND_EXTERNAL)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("election \"%s\" is external", election),
					 errdetail("An external election stays external.")));
		PG_RETURN_VOID();
	}
	PreventCommandIfReadOnly("leader_configure()");
	if (!le_lock_queue(&lock, ShareUpdateExclusiveLock))
		le_election_cannot_lock(election);
	if (!make_external(&relations, election))
		le_lock_release(&lock, ShareUpdateExclusiveLock);
	PG_RETURN_VOID();
}
