/*-------------------------------------------------------------------------
 *
 * fence.c
 *	  leader_fence() and the trigger that protects a table.
 *
 * The trigger takes its token from, in this order, the row's epoch column (if
 * it has one that the statement gives a value), leader_fence() in the same
 * transaction, the setting, and a term that this session leads.  It always raises an error or lets the write
 * pass; it never skips a row.
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
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/rel.h"

#include "arguments.h"
#include "fence.h"
#include "guc.h"
#include "leader_election.h"
#include "relations.h"
#include "token.h"

/* What a trigger keeps from row to row; lives as long as its FmgrInfo */
typedef struct Fence
{
	LeKey		key;			/* of the last token found current */
	uint64		generation;		/* when that was */
	int64		presented;		/* the token presented then; 0 if none */
	int			column;			/* of the epoch, or 0 */
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
	if (data->tg_trigger->tgnargs == 2 &&
		!TRIGGER_FIRED_FOR_ROW(data->tg_event) &&
		!TRIGGER_FIRED_BY_TRUNCATE(data->tg_event))
		trigger_misused("A trigger with an epoch column must fire for each row.");
}

int
le_fence_epoch_column(Relation rel, const char *name)
{
	int			column = SPI_fnumber(RelationGetDescr(rel), name);
	Form_pg_attribute attribute;

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
	if (attribute->attgenerated != '\0' || attribute->attidentity != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
				 errmsg("epoch column \"%s\" of relation \"%s\" must not be generated",
						name, RelationGetRelationName(rel)),
				 errdetail("The fence stores epochs in it.")));
	return column;
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
			 errmsg("a row trigger of table \"%s\" could change the epoch after it was checked",
					RelationGetRelationName(rel)),
			 errdetail("Triggers fire in the order of their names, and the fence must be the last one that fires before the row is stored."),
			 errhint("Rename the other trigger so that its name sorts before the fence's.")));
}

static Fence *
get_fence(FunctionCallInfo fcinfo)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	Fence	   *fence = fcinfo->flinfo->fn_extra;

	if (fence != NULL)
		return fence;
	fence = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(Fence));
	fence->key.rel = le_relations(fcinfo)->state;
	fence->key.election = data->tg_trigger->tgargs[0];
	le_check_trigger_election(fence->key.election);
	if (data->tg_trigger->tgnargs == 2)
	{
		fence->column = le_fence_epoch_column(data->tg_relation,
											  data->tg_trigger->tgargs[1]);
		if (TRIGGER_FIRED_FOR_ROW(data->tg_event) &&
			!le_fence_runs_last(data->tg_relation->trigdesc,
								data->tg_trigger->tgname))
			le_fence_not_last(data->tg_relation);
	}
	fcinfo->flinfo->fn_extra = fence;
	return fence;
}

/* Requires the epoch to be current; asks only if it was not asked before. */
static void
require_epoch(Fence *fence, int64 epoch)
{
	if (fence->generation == le_generation && fence->key.epoch == epoch)
		return;
	fence->key.epoch = epoch;
	le_token_use(&fence->key);
	fence->presented = le_token_presented(fence->key.rel, fence->key.election);
	fence->generation = le_generation;
}

/* Requires that a token is presented and current; returns its epoch. */
static int64
require_presented(Fence *fence, Relation rel)
{
	int64		epoch = fence->generation == le_generation ?
		fence->presented :
		le_token_presented(fence->key.rel, fence->key.election);

	if (epoch == 0)
		le_token_missing(fence->key.rel, fence->key.election,
						 RelationGetRelationName(rel));
	require_epoch(fence, epoch);
	return epoch;
}

static HeapTuple
stamp(HeapTuple tuple, Relation rel, int column, int64 epoch)
{
	Datum		value = Int64GetDatum(epoch);
	bool		isnull = false;

	return heap_modify_tuple_by_cols(tuple, RelationGetDescr(rel), 1, &column,
									 &value, &isnull);
}

/* The row to be stored for one that an INSERT or UPDATE brings. */
static HeapTuple
fence_row(Fence *fence, const TriggerData *data)
{
	TupleDesc	desc = RelationGetDescr(data->tg_relation);
	bool		update = TRIGGER_FIRED_BY_UPDATE(data->tg_event);
	HeapTuple	tuple = update ? data->tg_newtuple : data->tg_trigtuple;
	bool		isnull;
	int64		epoch = DatumGetInt64(heap_getattr(tuple, fence->column, desc,
												   &isnull));
	bool		given = !isnull;

	/* An epoch that is only left standing is nobody's claim to be leader. */
	if (given && update)
	{
		bool		was_null;
		Datum		was = heap_getattr(data->tg_trigtuple, fence->column, desc,
									   &was_null);

		given = was_null || DatumGetInt64(was) != epoch;
	}
	if (given)
	{
		require_epoch(fence, epoch);
		return tuple;
	}
	return stamp(tuple, data->tg_relation, fence->column,
				 require_presented(fence, data->tg_relation));
}

Datum
le_leader_fence_check(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	Fence	   *fence;
	HeapTuple	result = NULL;

	if (fcinfo->flinfo->fn_extra == NULL)
		check_call(fcinfo);
	if (TRIGGER_FIRED_FOR_ROW(data->tg_event))
		result = TRIGGER_FIRED_BY_UPDATE(data->tg_event) ?
			data->tg_newtuple : data->tg_trigtuple;

	if (!le_enforce)
		return PointerGetDatum(result);
	fence = get_fence(fcinfo);
	if (fence->column > 0 && result != NULL &&
		!TRIGGER_FIRED_BY_DELETE(data->tg_event))
		result = fence_row(fence, data);
	else
		(void) require_presented(fence, data->tg_relation);
	return PointerGetDatum(result);
}
