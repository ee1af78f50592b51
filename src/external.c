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
 * change: not before, so that an idle transaction keeps nobody waiting; and
 * not later, so that whoever commits with a lower token meets either the new
 * mark or the lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "change.h"
#include "clock.h"
#include "external.h"
#include "lock.h"
#include "relations.h"
#include "rights.h"
#include "shmem.h"

/* Asked again at commit, as a transaction can become read-only. */
static void
require_writable(const LeKey *key)
{
	if (XactReadOnly)
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot present a higher token of election \"%s\" than before in a read-only transaction",
						key->election),
				 errdetail("The election is external, and the token would be written down.")));
}

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
	require_writable(key);
}

void
le_external_raise(const LeKey *key)
{
	Relation	rel;
	LeElection	row;

	require_writable(key);
	le_lock_change_at_commit(key->rel, key->election);
	/* At commit there is no snapshot left, and rows are not written without. */
	PushActiveSnapshot(GetLatestSnapshot());
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
	PopActiveSnapshot();
}
