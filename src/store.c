/*-------------------------------------------------------------------------
 *
 * store.c
 *	  Reads and writes the rows of the extension's tables.
 *
 * This file says what stands in which column; it knows no policy, and row.c how
 * a row is found and stored.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "leader_election.h"
#include "relations.h"
#include "row.h"
#include "store.h"

/*
 * Where the row that was read or written last stands.  A transaction asks for
 * the same one again and again, and a descent of the index is half the cost
 * of reading it.
 */
static struct
{
	Oid			rel;
	Oid			index;			/* by which there is no other row of the key */
	ItemPointerData tid;
	char		key[LE_NAME_MAX + 1];
}			last_seen;

static void
remember_tid(Relation rel, const char *key, const ItemPointerData *tid)
{
	last_seen.rel = RelationGetRelid(rel);
	last_seen.index = le_primary_key_index(rel);
	last_seen.tid = *tid;
	strlcpy(last_seen.key, key, sizeof(last_seen.key));
}

void
le_store_expect(Relation rel, const char *election, const ItemPointerData *tid)
{
	remember_tid(rel, election, tid);
}

static bool
has_key(TupleTableSlot *slot, const char *key)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, 1, &isnull);
	text	   *name;

	if (isnull)
		return false;
	name = DatumGetTextPP(value);
	return VARSIZE_ANY_EXHDR(name) == strlen(key) &&
		memcmp(VARDATA_ANY(name), key, strlen(key)) == 0;
}

/*
 * Reads the row where it was seen last.  Anything may stand there by now, or
 * nothing, or the block be cut off; but a row that is visible and has the key
 * is the one that the index would lead to.
 */
static bool
fetch_last_seen(Relation rel, const char *key, TupleTableSlot *slot)
{
	Snapshot	snapshot;
	bool		found;

	if (last_seen.rel != RelationGetRelid(rel) ||
		last_seen.index != le_primary_key_index(rel) ||
		strcmp(last_seen.key, key) != 0 ||
		ItemPointerGetBlockNumber(&last_seen.tid) >=
		RelationGetNumberOfBlocks(rel))
		return false;
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	found = table_tuple_fetch_row_version(rel, &last_seen.tid, SnapshotAny,
										  slot) &&
		table_tuple_satisfies_snapshot(rel, slot, snapshot) &&
		has_key(slot, key);
	UnregisterSnapshot(snapshot);
	return found;
}

/* A text that is longer than we write is somebody's manual one: cut it. */
static void
copy_text(char *target, Size size, Datum value)
{
	text_to_cstring_buffer(DatumGetTextPP(value), target, size);
}

/* Only the holder may be null, whatever became of the table's constraints. */
static void
require_no_nulls(const bool *nulls)
{
	for (int i = 1; i <= LE_STATE_NATTS; i++)
	{
		if (nulls[i] && i != LE_STATE_HOLDER)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("a row of extension \"leader_election\" has been altered"),
					 errdetail("Column %d is null.", i)));
	}
}

/* Reads a row out of a slot that holds one. */
static void
deform_election(TupleTableSlot *slot, LeElection *result)
{
	Datum	   *values;
	bool	   *nulls;

	slot_getallattrs(slot);
	values = slot->tts_values - 1;
	nulls = slot->tts_isnull - 1;
	require_no_nulls(nulls);

	memset(result, 0, sizeof(LeElection));
	result->exists = true;
	result->tid = slot->tts_tid;
	copy_text(result->election, sizeof(result->election),
			  values[LE_STATE_ELECTION]);
	strlcpy(result->owner, NameStr(*DatumGetName(values[LE_STATE_OWNER])),
			NAMEDATALEN);
	result->kind = DatumGetChar(values[LE_STATE_KIND]);
	result->ttl = DatumGetInt64(values[LE_STATE_TTL]);
	result->terms = DatumGetInt64(values[LE_STATE_TERMS]);
	result->epoch = DatumGetInt64(values[LE_STATE_EPOCH]);
	result->acquired_at = DatumGetTimestampTz(values[LE_STATE_ACQUIRED_AT]);
	result->held = !nulls[LE_STATE_HOLDER];
	if (result->held)
		copy_text(result->holder, sizeof(result->holder),
				  values[LE_STATE_HOLDER]);
}

bool
le_election_is_led(const LeElection *row)
{
	return row->held || (row->kind == LE_KIND_EXTERNAL &&
						 !TIMESTAMP_IS_NOBEGIN(row->acquired_at));
}

void
le_store_read(Relation rel, const char *election, LeElection *result)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);

	if (fetch_last_seen(rel, election, slot))
		deform_election(slot, result);
	else if (le_row_fetch(rel, election, slot))
	{
		deform_election(slot, result);
		remember_tid(rel, election, &result->tid);
	}
	else
		memset(result, 0, sizeof(LeElection));
	ExecDropSingleTupleTableSlot(slot);
}

void
le_store_scan(Relation rel, LeStoreVisit visit, void *arg)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TableScanDesc scan = table_beginscan(rel, SnapshotAny, 0, NULL);

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		LeElection	election;

		if (!table_tuple_satisfies_snapshot(rel, slot, snapshot))
			continue;
		deform_election(slot, &election);
		if (!visit(&election, arg))
			break;
	}
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
	ExecDropSingleTupleTableSlot(slot);
}

void
le_store_scan_for(Relation rel, const char *election, LeStoreVisit visit,
				  void *arg)
{
	LeElection	row;

	if (election == NULL)
	{
		le_store_scan(rel, visit, arg);
		return;
	}
	le_store_read(rel, election, &row);
	if (row.exists)
		visit(&row, arg);
}

void
le_store_write(Relation rel, const LeElection *election)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	Datum	   *values = slot->tts_values - 1;
	bool	   *nulls = slot->tts_isnull - 1;
	NameData	owner;
	ItemPointerData tid = election->tid;

	ExecClearTuple(slot);
	namestrcpy(&owner, election->owner);
	memset(slot->tts_isnull, 0, LE_STATE_NATTS * sizeof(bool));
	values[LE_STATE_ELECTION] = CStringGetTextDatum(election->election);
	values[LE_STATE_OWNER] = NameGetDatum(&owner);
	values[LE_STATE_KIND] = CharGetDatum(election->kind);
	values[LE_STATE_TTL] = Int64GetDatum(election->ttl);
	values[LE_STATE_TERMS] = Int64GetDatum(election->terms);
	values[LE_STATE_EPOCH] = Int64GetDatum(election->epoch);
	values[LE_STATE_ACQUIRED_AT] = TimestampTzGetDatum(election->acquired_at);
	nulls[LE_STATE_HOLDER] = !election->held;
	if (election->held)
		values[LE_STATE_HOLDER] = CStringGetTextDatum(election->holder);
	ExecStoreVirtualTuple(slot);
	le_row_put(rel, slot, election->exists ? &tid : NULL);
	remember_tid(rel, election->election, &slot->tts_tid);
	ExecDropSingleTupleTableSlot(slot);
}

bool
le_store_get_metadata(Relation rel, const LeKey *key, Datum *value)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	bool		found = le_row_fetch(rel, key->election, slot);

	if (found)
	{
		slot_getallattrs(slot);
		/* A row that an earlier term has left behind says nothing. */
		found = !slot->tts_isnull[LE_METADATA_EPOCH - 1] &&
			DatumGetInt64(slot->tts_values[LE_METADATA_EPOCH - 1]) ==
			key->epoch && !slot->tts_isnull[LE_METADATA_VALUE - 1];
	}
	if (found)
		*value = PointerGetDatum(PG_DETOAST_DATUM_COPY(slot->tts_values[LE_METADATA_VALUE - 1]));
	ExecDropSingleTupleTableSlot(slot);
	return found;
}

void
le_store_set_metadata(Relation rel, const LeKey *key, Datum value, bool isnull)
{
	TupleTableSlot *old = table_slot_create(rel, NULL);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	bool		exists = le_row_fetch(rel, key->election, old);

	if (exists || !isnull)
	{
		Datum	   *values = slot->tts_values - 1;
		bool	   *nulls = slot->tts_isnull - 1;

		ExecClearTuple(slot);
		memset(slot->tts_isnull, 0, LE_METADATA_NATTS * sizeof(bool));
		values[LE_METADATA_ELECTION] = CStringGetTextDatum(key->election);
		values[LE_METADATA_EPOCH] = Int64GetDatum(key->epoch);
		values[LE_METADATA_VALUE] = value;
		nulls[LE_METADATA_VALUE] = isnull;
		ExecStoreVirtualTuple(slot);
		le_row_put(rel, slot, exists ? &old->tts_tid : NULL);
	}
	ExecDropSingleTupleTableSlot(slot);
	ExecDropSingleTupleTableSlot(old);
}

void
le_store_add_history(Relation rel, const LeElection *election,
					 TimestampTz ended_at, const char *reason)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	Datum	   *values = slot->tts_values - 1;

	ExecClearTuple(slot);
	memset(slot->tts_isnull, 0, LE_HISTORY_NATTS * sizeof(bool));
	values[LE_HISTORY_ELECTION] = CStringGetTextDatum(election->election);
	values[LE_HISTORY_EPOCH] = Int64GetDatum(election->epoch);
	values[LE_HISTORY_LEADER] = CStringGetTextDatum(election->holder);
	values[LE_HISTORY_ACQUIRED_AT] = TimestampTzGetDatum(election->acquired_at);
	values[LE_HISTORY_ENDED_AT] = TimestampTzGetDatum(ended_at);
	values[LE_HISTORY_END_REASON] = CStringGetTextDatum(reason);
	ExecStoreVirtualTuple(slot);
	le_row_put(rel, slot, NULL);
	ExecDropSingleTupleTableSlot(slot);
}
