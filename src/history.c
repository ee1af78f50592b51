/*-------------------------------------------------------------------------
 *
 * history.c
 *	  Deletes rows of the history.
 *
 * Below the executor, as all writes of ours: publications, triggers and row
 * security are not asked.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/skey.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "history.h"
#include "names.h"
#include "relations.h"

/* What is being deleted, and what has come of it */
typedef struct Deletion
{
	Relation	rel;
	Snapshot	snapshot;
	CommandId	cid;
	int64		deleted;
	bool		busy;			/* another transaction deletes some */
} Deletion;

static void
begin_deletion(Deletion *d, Relation rel)
{
	d->rel = rel;
	d->snapshot = RegisterSnapshot(GetLatestSnapshot());
	d->cid = GetCurrentCommandId(true);
	d->deleted = 0;
	d->busy = false;
}

static void
end_deletion(Deletion *d)
{
	UnregisterSnapshot(d->snapshot);
	CommandCounterIncrement();
}

/* Deletes the row in the slot, if it is there. */
static void
delete_row(Deletion *d, TupleTableSlot *slot)
{
	TM_FailureData failure;
	TM_Result	result;

	if (!table_tuple_satisfies_snapshot(d->rel, slot, d->snapshot))
		return;
	result = table_tuple_delete(d->rel, &slot->tts_tid, d->cid, InvalidSnapshot,
								InvalidSnapshot, false, &failure, false);
	if (result == TM_Ok)
		d->deleted++;
	else if (result == TM_BeingModified)
		d->busy = true;
}

static bool
is_wanted(TupleTableSlot *slot, List *elections, TimestampTz ended_before)
{
	bool		no_name;
	bool		no_end;
	Datum		name = slot_getattr(slot, LE_HISTORY_ELECTION, &no_name);
	Datum		end = slot_getattr(slot, LE_HISTORY_ENDED_AT, &no_end);

	return !no_name && !no_end &&
		DatumGetTimestampTz(end) < ended_before &&
		le_names_contain(elections, TextDatumGetCString(name));
}

int64
le_history_prune(Relation rel, List *elections, TimestampTz ended_before)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = table_beginscan(rel, SnapshotAny, 0, NULL);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "history rows",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	Deletion	deletion;

	begin_deletion(&deletion, rel);
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(context);
		if (is_wanted(slot, elections, ended_before))
			delete_row(&deletion, slot);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	end_deletion(&deletion);
	return deletion.deleted;
}

/* An index by which the terms of one election are found; NULL if there is none */
static Relation
open_index(Relation rel)
{
	ListCell   *lc;

	foreach(lc, RelationGetIndexList(rel))
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

		if (index->rd_rel->relam == BTREE_AM_OID &&
			index->rd_index->indisvalid &&
			index->rd_index->indkey.values[0] == LE_HISTORY_ELECTION &&
			index->rd_opcintype[0] == TEXTOID &&
			index->rd_indcollation[0] == C_COLLATION_OID &&
			RelationGetIndexPredicate(index) == NIL)
			return index;
		index_close(index, AccessShareLock);
	}
	return NULL;
}

bool
le_history_forget(Relation rel, const char *election)
{
	Relation	index = open_index(rel);
	TupleTableSlot *slot;
	Deletion	deletion;
	IndexScanDesc scan;
	ScanKeyData key;

	if (index == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" of extension \"leader_election\" has lost its index",
						RelationGetRelationName(rel)),
				 errhint("Drop the extension and create it again.")));
	slot = table_slot_create(rel, NULL);
	begin_deletion(&deletion, rel);
	ScanKeyEntryInitialize(&key, 0, 1, BTEqualStrategyNumber, TEXTOID,
						   C_COLLATION_OID, F_TEXTEQ,
						   CStringGetTextDatum(election));
	scan = le_index_beginscan(rel, index, SnapshotAny, 1);
	index_rescan(scan, &key, 1, NULL, 0);
	while (index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		delete_row(&deletion, slot);
	}
	index_endscan(scan);
	index_close(index, AccessShareLock);
	ExecDropSingleTupleTableSlot(slot);
	end_deletion(&deletion);
	return !deletion.busy;
}
