/*-------------------------------------------------------------------------
 *
 * answer.c
 *	  What a candidate is told.
 *
 * All durations of the interface are computed here, from the TTL and from
 * what is left of the lease.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "answer.h"
#include "clock.h"

#define RETRY_LEAST		(10 * LE_MS)
#define RETRY_BUSY		(100 * LE_MS)

/* Columns of the answer */
enum
{
	ANSWER_IS_LEADER,
	ANSWER_EPOCH,
	ANSWER_LEADER,
	ANSWER_EXPIRES_IN,
	ANSWER_STEP_DOWN_AFTER,
	ANSWER_RETRY_AFTER,
	ANSWER_NATTS
};

static const Oid column_types[ANSWER_NATTS] = {
	BOOLOID, INT8OID, TEXTOID, INTERVALOID, INTERVALOID, INTERVALOID
};

void
le_answer_held(LeAnswer *answer, const char *leader, char kind, int64 ttl,
			   int64 left)
{
	memset(answer, 0, sizeof(LeAnswer));
	answer->session = kind == LE_KIND_SESSION;
	answer->ttl = ttl;
	answer->left = left;
	strlcpy(answer->leader, leader, sizeof(answer->leader));
}

void
le_answer_other(LeAnswer *answer, const LeView *view, int64 ttl)
{
	if (le_view_is_held(view))
	{
		le_answer_held(answer, view->row.holder, view->row.kind,
					   view->row.ttl > 0 ? view->row.ttl : ttl,
					   le_clock_left(view->deadline, view->now));
		answer->busy = view->standing == LE_STANDING_UNCERTAIN;
	}
	else
	{
		memset(answer, 0, sizeof(LeAnswer));
		answer->ttl = ttl;
		answer->left = -1;
	}
}

void
le_answer_leader(LeAnswer *answer, int64 epoch, const char *holder, int64 ttl,
				 int64 left)
{
	memset(answer, 0, sizeof(LeAnswer));
	answer->is_leader = true;
	answer->epoch = epoch;
	answer->ttl = ttl;
	answer->left = left;
	strlcpy(answer->leader, holder, sizeof(answer->leader));
}

/* A third of the TTL before the lease ends, its holder must have stopped. */
static int64
step_down_after(const LeAnswer *answer)
{
	return Max(answer->left - answer->ttl / 3, 0);
}

/*
 * When to call again.  Followers of one election are spread, so that they do
 * not arrive together: those who wait for the end of the lease, behind it;
 * the others, before their third.
 */
static int64
retry_after(const LeAnswer *answer)
{
	int64		third = answer->ttl / 3;
	int64		left = answer->kept_back > 0 ? answer->kept_back : answer->left;
	double		jitter = pg_prng_double(&pg_global_prng_state);
	int64		retry;

	if (answer->busy)
		return RETRY_BUSY - (int64) (jitter * RETRY_BUSY / 2);
	if (answer->is_leader)
		retry = step_down_after(answer) / 2;
	else if (left >= third)
		retry = third - (int64) (jitter * third / 5);
	else
		retry = Min(Max(left, 0) + (int64) (jitter * third / 5), third);
	return Max(retry, Max(answer->ttl / 20, RETRY_LEAST));
}

/*
 * The type that the function returns.  The executor has looked it up already
 * for a function in FROM, as most calls are made.  A superuser may have altered
 * it, and the columns are filled in by number.
 */
static TupleDesc
answer_desc(FunctionCallInfo fcinfo)
{
	ReturnSetInfo *info = (ReturnSetInfo *) fcinfo->resultinfo;
	TupleDesc	desc;
	bool		intact;

	if (info != NULL && IsA(info, ReturnSetInfo) && info->expectedDesc != NULL)
		desc = info->expectedDesc;
	else
		desc = lookup_rowtype_tupdesc_copy(get_func_rettype(fcinfo->flinfo->fn_oid), -1);
	intact = desc->natts == ANSWER_NATTS;
	for (int i = 0; intact && i < ANSWER_NATTS; i++)
		intact = TupleDescAttr(desc, i)->atttypid == column_types[i];
	if (!intact)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("type \"%s\" has been altered",
						format_type_be(desc->tdtypeid)),
				 errhint("Drop the extension and create it again.")));
	return desc;
}

Datum
le_answer_datum(FunctionCallInfo fcinfo, const LeAnswer *answer)
{
	Datum		values[ANSWER_NATTS];
	bool		nulls[ANSWER_NATTS] = {false};
	bool		timed = answer->left != LE_FOREVER;

	values[ANSWER_IS_LEADER] = BoolGetDatum(answer->is_leader);
	values[ANSWER_EPOCH] = Int64GetDatum(answer->epoch);
	nulls[ANSWER_EPOCH] = !answer->is_leader;
	nulls[ANSWER_LEADER] = answer->leader[0] == '\0';
	if (!nulls[ANSWER_LEADER])
		values[ANSWER_LEADER] = CStringGetTextDatum(answer->leader);
	nulls[ANSWER_EXPIRES_IN] = answer->left < 0 || !timed;
	values[ANSWER_EXPIRES_IN] =
		IntervalPGetDatum(le_us_to_interval(answer->left));
	nulls[ANSWER_STEP_DOWN_AFTER] = !answer->is_leader || !timed;
	values[ANSWER_STEP_DOWN_AFTER] =
		IntervalPGetDatum(le_us_to_interval(step_down_after(answer)));
	nulls[ANSWER_RETRY_AFTER] = answer->is_leader && !timed;
	values[ANSWER_RETRY_AFTER] =
		IntervalPGetDatum(le_us_to_interval(retry_after(answer)));
	return HeapTupleGetDatum(heap_form_tuple(answer_desc(fcinfo), values,
											 nulls));
}
