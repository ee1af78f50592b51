/*-------------------------------------------------------------------------
 *
 * sqlfuncs.c
 *	  The SQL functions of leases.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "funcapi.h"
#include "tcop/pquery.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "answer.h"
#include "arguments.h"
#include "clock.h"
#include "election.h"
#include "epoch.h"
#include "guc.h"
#include "renewal.h"
#include "session.h"
#include "stats.h"
#include "wait.h"

PG_FUNCTION_INFO_V1(le_leader_acquire);
PG_FUNCTION_INFO_V1(le_leader_acquire_session);
PG_FUNCTION_INFO_V1(le_leader_renew);
PG_FUNCTION_INFO_V1(le_leader_renew_all);
PG_FUNCTION_INFO_V1(le_leader_release);
PG_FUNCTION_INFO_V1(le_leader_check);
PG_FUNCTION_INFO_V1(le_leader_set_metadata);

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

/*
 * The two functions take the same arguments, and give them another default: a
 * session needs no holder's name, and no TTL.
 */
static Datum
acquire(FunctionCallInfo fcinfo, char kind)
{
	const LeRelations *relations = le_relations(fcinfo);
	Oid			state = relations->state;
	bool		session = kind == LE_KIND_SESSION;
	LeBid		bid;
	LeAnswer	answer;
	int64		wait;
	bool		no_metadata;

	bid.kind = kind;
	bid.election = le_arg_name(fcinfo, 0, "election");
	bid.holder = session && PG_ARGISNULL(1) ? le_session_holder() :
		le_arg_name(fcinfo, 1, "holder");
	bid.ttl = le_arg_interval(fcinfo, 2, LE_TTL_MIN, LE_TTL_MAX, 0, "ttl");
	wait = le_arg_interval(fcinfo, 3, 0, LE_WAIT_MAX, 0, "wait");
	bid.metadata = le_arg_metadata(fcinfo, 4, &no_metadata);
	bid.has_metadata = !no_metadata;

	if (wait == 0)
		le_election_acquire(relations, &bid, &answer);
	else
		le_wait_acquire(relations, &bid, le_clock_now() + wait, &answer);
	/* Only of an election that is there, or anybody could use up the room. */
	if (!answer.is_leader && (answer.leader[0] != '\0' || answer.kept_back > 0))
		le_stats_count_for(state, bid.election, LE_COUNT_LOSING_BIDS);
	if (answer.granted && !told_by_commit(fcinfo))
		le_epoch_flush();
	return le_answer_datum(fcinfo, &answer);
}

Datum
le_leader_acquire(PG_FUNCTION_ARGS)
{
	return acquire(fcinfo, LE_KIND_LEASE);
}

Datum
le_leader_acquire_session(PG_FUNCTION_ARGS)
{
	return acquire(fcinfo, LE_KIND_SESSION);
}

/* The term that election and epoch name, and where its rows stand. */
static LeKey
key_arguments(FunctionCallInfo fcinfo, LeRelations *relations)
{
	LeKey		key;

	*relations = *le_relations(fcinfo);
	key.election = le_arg_name(fcinfo, 0, "election");
	key.epoch = le_arg_epoch(fcinfo, 1);
	key.rel = relations->state;
	return key;
}

Datum
le_leader_renew(PG_FUNCTION_ARGS)
{
	LeRelations relations;
	LeKey		key = key_arguments(fcinfo, &relations);
	LeAnswer	answer;

	le_renewal_renew(&key, &answer);
	return le_answer_datum(fcinfo, &answer);
}

Datum
le_leader_release(PG_FUNCTION_ARGS)
{
	LeRelations relations;
	LeKey		key = key_arguments(fcinfo, &relations);

	PG_RETURN_BOOL(le_election_release(&relations, &key));
}

Datum
le_leader_check(PG_FUNCTION_ARGS)
{
	LeRelations relations;
	LeKey		key = key_arguments(fcinfo, &relations);

	PG_RETURN_BOOL(le_renewal_check(&key));
}

Datum
le_leader_set_metadata(PG_FUNCTION_ARGS)
{
	LeRelations relations;
	LeKey		key = key_arguments(fcinfo, &relations);
	bool		isnull;
	Datum		value = le_arg_metadata(fcinfo, 2, &isnull);

	PG_RETURN_BOOL(le_election_set_metadata(&relations, &key, value, isnull));
}

/* One row of leader_renew_all */
static void
put_renewed(const char *election, int64 epoch, int64 left, void *arg)
{
	ReturnSetInfo *info = arg;
	Datum		values[3];
	bool		nulls[3] = {false};
	Interval	expires_in = {.time = Max(left, 0)};

	values[0] = CStringGetTextDatum(election);
	values[1] = Int64GetDatum(epoch);
	values[2] = IntervalPGetDatum(&expires_in);
	tuplestore_putvalues(info->setResult, info->setDesc, values, nulls);
}

Datum
le_leader_renew_all(PG_FUNCTION_ARGS)
{
	char	   *holder = le_arg_name(fcinfo, 0, "holder");

	InitMaterializedSRF(fcinfo, 0);
	le_renewal_renew_all(le_relations(fcinfo)->state, holder, put_renewed,
						 fcinfo->resultinfo);
	return (Datum) 0;
}
