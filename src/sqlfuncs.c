/*-------------------------------------------------------------------------
 *
 * sqlfuncs.c
 *	  The SQL functions of leases.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/pg_prng.h"
#include "funcapi.h"
#include "tcop/pquery.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "arguments.h"
#include "clock.h"
#include "election.h"
#include "epoch.h"
#include "guc.h"

#define RETRY_LEAST		(10 * LE_MS)
#define RETRY_BUSY		(100 * LE_MS)

PG_FUNCTION_INFO_V1(le_leader_acquire);
PG_FUNCTION_INFO_V1(le_leader_renew);
PG_FUNCTION_INFO_V1(le_leader_renew_all);
PG_FUNCTION_INFO_V1(le_leader_release);
PG_FUNCTION_INFO_V1(le_leader_check);
PG_FUNCTION_INFO_V1(le_leader_set_metadata);

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
	double		jitter = pg_prng_double(&pg_global_prng_state);
	int64		retry;

	if (answer->busy)
		return RETRY_BUSY - (int64) (jitter * RETRY_BUSY / 2);
	if (answer->is_leader)
		retry = step_down_after(answer) / 2;
	else if (answer->left >= third)
		retry = third - (int64) (jitter * third / 5);
	else
		retry = Min(Max(answer->left, 0) + (int64) (jitter * third / 5), third);
	return Max(retry, Max(answer->ttl / 20, RETRY_LEAST));
}

static Datum
answer_datum(FunctionCallInfo fcinfo, const LeAnswer *answer)
{
	TupleDesc	desc;
	Datum		values[ANSWER_NATTS];
	bool		nulls[ANSWER_NATTS] = {false};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE ||
		desc->natts != ANSWER_NATTS)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("the function is not declared as the extension declares it")));

	values[ANSWER_IS_LEADER] = BoolGetDatum(answer->is_leader);
	values[ANSWER_EPOCH] = Int64GetDatum(answer->epoch);
	nulls[ANSWER_EPOCH] = !answer->is_leader;
	nulls[ANSWER_LEADER] = answer->leader[0] == '\0';
	if (!nulls[ANSWER_LEADER])
		values[ANSWER_LEADER] = CStringGetTextDatum(answer->leader);
	nulls[ANSWER_EXPIRES_IN] = answer->left < 0;
	values[ANSWER_EXPIRES_IN] =
		IntervalPGetDatum(le_us_to_interval(answer->left));
	nulls[ANSWER_STEP_DOWN_AFTER] = !answer->is_leader;
	values[ANSWER_STEP_DOWN_AFTER] =
		IntervalPGetDatum(le_us_to_interval(step_down_after(answer)));
	values[ANSWER_RETRY_AFTER] =
		IntervalPGetDatum(le_us_to_interval(retry_after(answer)));
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values,
											 nulls));
}

/*
 * Is the answer sent by the very statement that the client has sent, and its
 * transaction committed with it?  Only a function in FROM knows its statement;
 * in doubt the answer is no.  A client that pipelines could read it a moment
 * before the commit; the clock's share of an epoch, which a restart outlasts,
 * covers that.
 */
static bool
told_by_commit(FunctionCallInfo fcinfo)
{
	ReturnSetInfo *info = (ReturnSetInfo *) fcinfo->resultinfo;

	return !IsTransactionBlock() && !IsSubTransaction() &&
		info != NULL && IsA(info, ReturnSetInfo) && ActivePortal != NULL &&
		info->econtext->ecxt_estate != NULL &&
		info->econtext->ecxt_estate->es_sourceText == ActivePortal->sourceText;
}

Datum
le_leader_acquire(PG_FUNCTION_ARGS)
{
	const LeRelations *relations = le_relations(fcinfo);
	LeBid		bid;
	LeAnswer	answer;
	int64		wait;
	bool		no_metadata;

	bid.election = le_arg_name(fcinfo, 0, "election");
	bid.holder = le_arg_name(fcinfo, 1, "holder");
	bid.ttl = le_arg_interval(fcinfo, 2, LE_TTL_MIN, LE_TTL_MAX,
							  le_default_ttl_ms * LE_MS, "ttl");
	wait = le_arg_interval(fcinfo, 3, 0, LE_WAIT_MAX, 0, "wait");
	bid.metadata = le_arg_metadata(fcinfo, 4, &no_metadata);
	bid.has_metadata = !no_metadata;

	if (wait == 0)
		le_election_acquire(relations, &bid, &answer);
	else
		le_election_acquire_wait(relations, &bid, le_clock_now() + wait,
								 &answer);
	if (answer.granted && !told_by_commit(fcinfo))
		le_epoch_flush();
	return answer_datum(fcinfo, &answer);
}

static LeKey
key_arguments(FunctionCallInfo fcinfo)
{
	LeKey		key;

	key.election = le_arg_name(fcinfo, 0, "election");
	key.epoch = le_arg_epoch(fcinfo, 1);
	key.rel = le_relations(fcinfo)->state;
	return key;
}

Datum
le_leader_renew(PG_FUNCTION_ARGS)
{
	LeKey		key = key_arguments(fcinfo);
	LeAnswer	answer;

	le_election_renew(le_relations(fcinfo), &key, &answer);
	return answer_datum(fcinfo, &answer);
}

Datum
le_leader_release(PG_FUNCTION_ARGS)
{
	LeKey		key = key_arguments(fcinfo);

	PG_RETURN_BOOL(le_election_release(le_relations(fcinfo), &key));
}

Datum
le_leader_check(PG_FUNCTION_ARGS)
{
	LeKey		key = key_arguments(fcinfo);

	PG_RETURN_BOOL(le_election_check(le_relations(fcinfo), &key));
}

Datum
le_leader_set_metadata(PG_FUNCTION_ARGS)
{
	LeKey		key = key_arguments(fcinfo);
	bool		isnull;
	Datum		value = le_arg_metadata(fcinfo, 2, &isnull);

	PG_RETURN_BOOL(le_election_set_metadata(le_relations(fcinfo), &key,
											value, isnull));
}

/* One row of leader_renew_all */
static void
put_renewed(const char *election, int64 epoch, int64 left, void *arg)
{
	ReturnSetInfo *info = arg;
	Datum		values[3];
	bool		nulls[3] = {false};

	values[0] = CStringGetTextDatum(election);
	values[1] = Int64GetDatum(epoch);
	values[2] = IntervalPGetDatum(le_us_to_interval(Max(left, 0)));
	tuplestore_putvalues(info->setResult, info->setDesc, values, nulls);
}

Datum
le_leader_renew_all(PG_FUNCTION_ARGS)
{
	char	   *holder = le_arg_name(fcinfo, 0, "holder");

	InitMaterializedSRF(fcinfo, 0);
	le_election_renew_all(le_relations(fcinfo), holder, put_renewed,
						  fcinfo->resultinfo);
	return (Datum) 0;
}
