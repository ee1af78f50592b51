/*-------------------------------------------------------------------------
 *
 * fence.c
 *	  leader_fence() and the trigger that protects a table.
 *
 * The trigger takes its token from, in this order, the row's epoch column (if
 * it has one that the statement gives a value), leader_fence() in the same
 * transaction, the setting, and a term that this session leads.  It always
 * raises an error or lets the write pass; it never skips a row.
 *
 * A row trigger runs for every row.  What it found for the last one is kept
 * for as long as le_generation stands still, so that most rows cost a few
 * comparisons.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/rel.h"

#include "arguments.h"
#include "fence.h"
#include "guc.h"
#include "leader_election.h"
#include "relations.h"
#include "template.h"
#include "token.h"

/* An election that a trigger asks for, and what was found */
typedef struct Claim
{
	LeKey		key;			/* of the last token found current */
	uint64		generation;		/* when that was */
	int64		presented;		/* the token presented, 0 if none */
	uint64		presented_generation;	/* when that was asked */
	char		election[LE_NAME_MAX + 1];
} Claim;

/* So many are kept, each made when it is first needed; a power of two */
#define MAX_CLAIMS	64

/* What a trigger keeps from row to row; lives as long as its FmgrInfo */
typedef struct Fence
{
	Oid			state;			/* the table of elections */
	MemoryContext context;
	LeTemplate *election;
	Size		constant_length;	/* of the name, if there is only one */
	int			column;			/* of the epoch, or 0 */
	Claim	   *claims[MAX_CLAIMS]; /* by a hash of the election's name */
} Fence;

PG_FUNCTION_INFO_V1(le_leader_fence);
PG_FUNCTION_INFO_V1(le_leader_fence_check);

Datum
le_leader_fence(PG_FUNCTION_ARGS)
{
	LeKey		key;

	key.election = le_arg_name(fcinfo, 0, "election");
	key.epoch = le_arg_epoch(fcinfo, 1);
	key.rel = le_relations(fcinfo)->state;
	le_token_present(&key);
	PG_RETURN_VOID();
}

static void
trigger_misused(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
			 errmsg("leader_fence_check() is not used as it must be"),
			 errdetail("%s", detail),
			 errhint("leader_protect() installs what is needed.")));
}

static void
check_call(FunctionCallInfo fcinfo)
{
	TriggerData *data = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		trigger_misused("It must be called as a trigger.");
	if (!TRIGGER_FIRED_BEFORE(data->tg_event))
		trigger_misused("The trigger must fire before the event.");
	if (data->tg_trigger->tgnargs < 1 || data->tg_trigger->tgnargs > 2)
		trigger_misused("Its arguments are the election and, optionally, the epoch column.");
}

bool
le_fence_has_epoch_column(Relation rel, const char *name)
{
	int			column = SPI_fnumber(RelationGetDescr(rel), name);
	Form_pg_attribute attribute;

	if (column <= 0)
		return false;
	attribute = TupleDescAttr(RelationGetDescr(rel), column - 1);
	return attribute->atttypid == INT8OID &&
		attribute->attgenerated == '\0' && attribute->attidentity == '\0';
}

int
le_fence_epoch_column(Relation rel, const char *name)
{
	int			column = SPI_fnumber(RelationGetDescr(rel), name);
	Form_pg_attribute attribute;

	if (le_fence_has_epoch_column(rel, name))
		return column;
	if (column == SPI_ERROR_NOATTRIBUTE)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("epoch column \"%s\" of relation \"%s\" does not exist",
						name, RelationGetRelationName(rel))));
	attribute = column > 0 ? TupleDescAttr(RelationGetDescr(rel), column - 1) :
		NULL;
	if (attribute == NULL || attribute->atttypid != INT8OID)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("epoch column \"%s\" of relation \"%s\" must be of type bigint",
						name, RelationGetRelationName(rel))));
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
			 errmsg("epoch column \"%s\" of relation \"%s\" must not be generated",
					name, RelationGetRelationName(rel)),
			 errdetail("The fence stores epochs in it.")));
}

bool
le_fence_runs_last(const TriggerDesc *triggers, const char *name)
{
	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		/* They fire in the order of their names. */
		if (strcmp(trigger->tgname, name) > 0 &&
			trigger->tgenabled != TRIGGER_DISABLED &&
			TRIGGER_FOR_ROW(trigger->tgtype) &&
			TRIGGER_FOR_BEFORE(trigger->tgtype) &&
			(TRIGGER_FOR_INSERT(trigger->tgtype) ||
			 TRIGGER_FOR_UPDATE(trigger->tgtype)))
			return false;
	}
	return true;
}

void
le_fence_not_last(Relation rel)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("a row trigger of table \"%s\" could change the row after it was checked",
					RelationGetRelationName(rel)),
			 errdetail("Triggers fire in the order of their names, and the fence must be the last one that fires before the row is stored."),
			 errhint("Rename the other trigger so that its name sorts before the fence's.")));
}

static Fence *
get_fence(FunctionCallInfo fcinfo)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	const Trigger *trigger = data->tg_trigger;
	Fence	   *fence = fcinfo->flinfo->fn_extra;
	bool		judges_row;
	MemoryContext old;

	if (fence != NULL)
		return fence;
	old = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);
	fence = palloc0(sizeof(Fence));
	fence->election = le_template_parse(trigger->tgargs[0],
										data->tg_relation);
	MemoryContextSwitchTo(old);
	if (trigger->tgnargs == 2)
		fence->column = le_fence_epoch_column(data->tg_relation,
											  trigger->tgargs[1]);
	fence->state = le_relations(fcinfo)->state;
	fence->context = fcinfo->flinfo->fn_mcxt;
	if (le_template_constant(fence->election))
		fence->constant_length = strlen(le_template_constant(fence->election));

	judges_row = fence->column > 0 ||
		le_template_constant(fence->election) == NULL;
	if (TRIGGER_FIRED_FOR_ROW(data->tg_event))
	{
		if (judges_row && !le_fence_runs_last(data->tg_relation->trigdesc,
											  trigger->tgname))
			le_fence_not_last(data->tg_relation);
	}
	else if (judges_row && !TRIGGER_FIRED_BY_TRUNCATE(data->tg_event))
		trigger_misused("A trigger that looks at rows must fire for each row.");
	fcinfo->flinfo->fn_extra = fence;
	return fence;
}

/*
 * The claim on an election, which may not have been asked for yet.  Valid until
 * the next one is got.
 */
static Claim *
get_claim(Fence *fence, const char *election, Size length)
{
	uint32		hash = hash_bytes((const unsigned char *) election, length);
	Claim	  **slot = &fence->claims[hash & (MAX_CLAIMS - 1)];
	Claim	   *claim = *slot;

	if (claim != NULL && strcmp(claim->election, election) == 0)
		return claim;
	le_check_name(election, "election");
	if (claim == NULL)
	{
		claim = *slot = MemoryContextAllocZero(fence->context, sizeof(Claim));
		claim->key.rel = fence->state;
		claim->key.election = claim->election;
	}
	strlcpy(claim->election, election, sizeof(claim->election));
	claim->generation = claim->presented_generation = 0;
	return claim;
}

/* The claim on the election of a row, or on that of all rows */
static Claim *
row_claim(Fence *fence, HeapTuple row, Relation rel)
{
	const char *constant = le_template_constant(fence->election);
	char		election[LE_NAME_MAX + 1];
	Size		length;

	if (constant)
		return get_claim(fence, constant, fence->constant_length);
	length = le_template_expand(fence->election, row, rel, election);
	return get_claim(fence, election, length);
}

/* Requires the epoch to be current; asks only if it was not asked before. */
static void
require_epoch(Claim *claim, int64 epoch, bool from_setting)
{
	if (claim->generation == le_generation && claim->key.epoch == epoch)
		return;
	claim->key.epoch = epoch;
	le_token_use(&claim->key, from_setting);
	claim->generation = le_generation;
}

/* Requires that a token is presented and current; returns its epoch. */
static int64
require_presented(Claim *claim, Relation rel)
{
	if (claim->presented_generation != le_generation)
	{
		claim->presented = le_token_presented(claim->key.rel,
											  claim->key.election);
		claim->presented_generation = le_generation;
	}
	if (claim->presented == 0)
		le_token_missing(claim->key.rel, claim->key.election,
						 RelationGetRelationName(rel));
	require_epoch(claim, claim->presented, true);
	return claim->presented;
}

/* The row with that epoch; tuple and slot hold the same one. */
static HeapTuple
stamp(HeapTuple tuple, TupleTableSlot *slot, Relation rel, int column,
	  int64 epoch)
{
	HeapTuple	stamped;

	slot_getallattrs(slot);
	slot->tts_values[column - 1] = Int64GetDatum(epoch);
	slot->tts_isnull[column - 1] = false;
	stamped = heap_form_tuple(RelationGetDescr(rel), slot->tts_values,
							  slot->tts_isnull);
	stamped->t_self = tuple->t_self;
	stamped->t_tableOid = tuple->t_tableOid;
	return stamped;
}

/*
 * Does the row bring an epoch?  One that an UPDATE only leaves standing is
 * nobody's claim to be leader.
 */
static bool
brings_epoch(const Fence *fence, const TriggerData *data, int64 *epoch)
{
	TupleDesc	desc = RelationGetDescr(data->tg_relation);
	bool		update = TRIGGER_FIRED_BY_UPDATE(data->tg_event);
	bool		isnull;
	bool		was_null;
	Datum		was;

	*epoch = DatumGetInt64(heap_getattr(update ? data->tg_newtuple :
										data->tg_trigtuple,
										fence->column, desc, &isnull));
	if (isnull || !update)
		return !isnull;
	was = heap_getattr(data->tg_trigtuple, fence->column, desc, &was_null);
	return was_null || DatumGetInt64(was) != *epoch;
}

/* A row that leaves its election by an UPDATE is deleted from it. */
static void
fence_leaving(Fence *fence, const TriggerData *data)
{
	Relation	rel = data->tg_relation;
	char		old[LE_NAME_MAX + 1];
	char		new[LE_NAME_MAX + 1];
	Size		length;

	if (le_template_constant(fence->election))
		return;
	length = le_template_expand(fence->election, data->tg_trigtuple, rel, old);
	(void) le_template_expand(fence->election, data->tg_newtuple, rel, new);
	if (strcmp(old, new) != 0)
		(void) require_presented(get_claim(fence, old, length), rel);
}

/* Judges one row; returns the one to go on with. */
static HeapTuple
fence_row(Fence *fence, const TriggerData *data)
{
	Relation	rel = data->tg_relation;
	bool		update = TRIGGER_FIRED_BY_UPDATE(data->tg_event);
	HeapTuple	row = update ? data->tg_newtuple : data->tg_trigtuple;
	Claim	   *claim;
	int64		epoch;

	if (update)
		fence_leaving(fence, data);
	claim = row_claim(fence, row, rel);
	if (fence->column == 0 || TRIGGER_FIRED_BY_DELETE(data->tg_event))
		(void) require_presented(claim, rel);
	else if (brings_epoch(fence, data, &epoch))
		require_epoch(claim, epoch, false);
	else
		row = stamp(row, update ? data->tg_newslot : data->tg_trigslot, rel,
					fence->column, require_presented(claim, rel));
	return row;
}

static void
fence_statement(Fence *fence, const TriggerData *data)
{
	if (le_template_constant(fence->election) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot truncate table \"%s\"",
						RelationGetRelationName(data->tg_relation)),
				 errdetail("Each of its rows is protected by an election of its own."),
				 errhint("Delete the rows.")));
	(void) require_presented(row_claim(fence, NULL, data->tg_relation),
							 data->tg_relation);
}

Datum
le_leader_fence_check(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	HeapTuple	result = NULL;

	if (fcinfo->flinfo->fn_extra == NULL)
		check_call(fcinfo);
	if (TRIGGER_FIRED_FOR_ROW(data->tg_event))
		result = TRIGGER_FIRED_BY_UPDATE(data->tg_event) ?
			data->tg_newtuple : data->tg_trigtuple;
	if (!le_enforce)
		return PointerGetDatum(result);
	if (result != NULL)
		result = fence_row(get_fence(fcinfo), data);
	else
		fence_statement(get_fence(fcinfo), data);
	return PointerGetDatum(result);
}
