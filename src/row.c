/*-------------------------------------------------------------------------
 *
 * row.c
 *	  Finds, stores and deletes single rows of the extension's tables.
 *
 * Reads see the latest committed state and this transaction's own changes,
 * never the transaction's snapshot: a REPEATABLE READ transaction that is
 * older than a takeover must see the takeover.  They scan with SnapshotAny and
 * ask the visibility of each version afterwards, because a scan under an MVCC
 * snapshot would leave predicate locks behind, and SERIALIZABLE transactions
 * that have nothing to do with each other would fail over them.
 *
 * Writes go through the table and index access methods.  Triggers, row
 * security and constraints that somebody put on the tables are not honoured,
 * and the trigger that keeps manual changes away is not fired.  The election's
 * heavyweight lock keeps every writer of ours apart, so a concurrent update can
 * only be somebody's manual one.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/skey.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "row.h"

/*
 * Opens the index by which rows are found.  A superuser may have made another
 * one; in one of other columns or of another order we would search in vain.
 */
static Relation
open_primary_key(Relation rel)
{
	Oid			oid = le_primary_key_index(rel);
	Relation	index = OidIsValid(oid) ? index_open(oid, AccessShareLock) : NULL;

	if (index == NULL || IndexRelationGetNumberOfKeyAttributes(index) != 1 ||
		index->rd_index->indkey.values[0] != 1 ||
		index->rd_opcintype[0] != TEXTOID ||
		index->rd_indcollation[0] != C_COLLATION_OID)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" of extension \"leader_election\" has lost its primary key",
						RelationGetRelationName(rel)),
				 errhint("Drop the extension and create it again.")));
	return index;
}

bool
le_row_fetch(Relation rel, const char *key, TupleTableSlot *slot)
{
	Relation	index = open_primary_key(rel);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	Datum		value = CStringGetTextDatum(key);
	IndexScanDesc scan;
	ScanKeyData scankey;
	bool		found = false;

	ScanKeyEntryInitialize(&scankey, 0, 1, BTEqualStrategyNumber, TEXTOID,
						   C_COLLATION_OID, F_TEXTEQ, value);
	scan = le_index_beginscan(rel, index, SnapshotAny, 1);
	index_rescan(scan, &scankey, 1, NULL, 0);
	while (!found && index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		found = table_tuple_satisfies_snapshot(rel, slot, snapshot);
	}
	if (found)
		ExecMaterializeSlot(slot);
	else
		ExecClearTuple(slot);
	index_endscan(scan);
	UnregisterSnapshot(snapshot);
	index_close(index, AccessShareLock);
	pfree(DatumGetPointer(value));
	return found;
}

static void
changed_under_our_lock(Relation rel)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("a row of table \"%s\" of extension \"leader_election\" was changed by hand",
					RelationGetRelationName(rel)),
			 errhint("Try again.")));
}

static void
put_index_entries(Relation rel, TupleTableSlot *slot, LeUpdateIndexes indexes)
{
	EState	   *estate = CreateExecutorState();
	ResultRelInfo *rri = makeNode(ResultRelInfo);

	InitResultRelInfo(rri, rel, 0, NULL, 0);
	ExecOpenIndices(rri, false);
	le_insert_index_tuples(rri, slot, estate, indexes);
	ExecCloseIndices(rri);
	FreeExecutorState(estate);
}

void
le_row_put(Relation rel, TupleTableSlot *slot, ItemPointer old_tid)
{
	CommandId	cid = GetCurrentCommandId(true);
	LeUpdateIndexes indexes = LE_UPDATE_ALL_INDEXES;

	if (old_tid == NULL)
		table_tuple_insert(rel, slot, cid, 0, NULL);
	else
	{
		TM_FailureData failure;
		LockTupleMode mode;

		if (table_tuple_update(rel, old_tid, slot, cid, InvalidSnapshot,
							   InvalidSnapshot, true, &failure, &mode,
							   &indexes) != TM_Ok)
			changed_under_our_lock(rel);
	}
	/* An update seldom needs index entries: no indexed column changes. */
	if (indexes != LE_UPDATE_NO_INDEXES)
		put_index_entries(rel, slot, indexes);

	/* The transaction's own next read must see the row. */
	CommandCounterIncrement();
}

void
le_row_delete(Relation rel, const char *key)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TM_FailureData failure;

	if (le_row_fetch(rel, key, slot))
	{
		if (table_tuple_delete(rel, &slot->tts_tid, GetCurrentCommandId(true),
							   InvalidSnapshot, InvalidSnapshot, true,
							   &failure, false) != TM_Ok)
			changed_under_our_lock(rel);
		CommandCounterIncrement();
	}
	ExecDropSingleTupleTableSlot(slot);
}
