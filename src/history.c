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

#include "access/tableam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "history.h"
#include "names.h"
#include "relations.h"

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
le_history_delete(Relation rel, List *elections, TimestampTz ended_before,
				  bool *busy)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TableScanDesc scan = table_beginscan(rel, SnapshotAny, 0, NULL);
	CommandId	cid = GetCurrentCommandId(true);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "history rows",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	int64		deleted = 0;

	*busy = false;
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		TM_FailureData failure;
		TM_Result	result;

		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(context);
		if (!table_tuple_satisfies_snapshot(rel, slot, snapshot) ||
			!is_wanted(slot, elections, ended_before))
			continue;
		result = table_tuple_delete(rel, &slot->tts_tid, cid, InvalidSnapshot,
									InvalidSnapshot, false, &failure, false);
		if (result == TM_Ok)
			deleted++;
		else if (result == TM_BeingModified)
			*busy = true;
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
	ExecDropSingleTupleTableSlot(slot);
	CommandCounterIncrement();
	return deleted;
}
