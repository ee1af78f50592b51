/*-------------------------------------------------------------------------
 *
 * statsfuncs.c
 *	  The rows behind the view leader_stats, and leader_stats_reset().
 *
 * As in leader_status every election is listed, and what is known of it is told
 * to members of its owner and to pg_read_all_stats.  A standby has counted
 * nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xlog.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "arguments.h"
#include "asked.h"
#include "clock.h"
#include "relations.h"
#include "rights.h"
#include "shmem.h"
#include "store.h"

PG_FUNCTION_INFO_V1(le_leader_election_stats);
PG_FUNCTION_INFO_V1(le_leader_stats_reset);

enum
{
	STATS_ELECTION,
	STATS_TERMS,
	STATS_TAKEOVERS,
	STATS_CHANGES_LAST_HOUR,
	STATS_RENEWALS,
	STATS_LONGEST_RENEWAL_GAP,
	STATS_LOSING_BIDS,
	STATS_FENCED_COMMITS,
	STATS_REJECTED_STALE,
	STATS_REJECTED_MISSING,
	STATS_REJECTED_UNISSUED,
	STATS_RESET,
	STATS_NATTS
};

/* Which column shows a counter */
static const int counter_columns[LE_COUNTERS] = {
	[LE_COUNT_TERMS] = STATS_TERMS,
	[LE_COUNT_TAKEOVERS] = STATS_TAKEOVERS,
	[LE_COUNT_RENEWALS] = STATS_RENEWALS,
	[LE_COUNT_LOSING_BIDS] = STATS_LOSING_BIDS,
	[LE_COUNT_FENCED_COMMITS] = STATS_FENCED_COMMITS,
	[LE_COUNT_STALE] = STATS_REJECTED_STALE,
	[LE_COUNT_MISSING] = STATS_REJECTED_MISSING,
	[LE_COUNT_UNISSUED] = STATS_REJECTED_UNISSUED
};

typedef struct StatsRows
{
	ReturnSetInfo *info;
	Oid			state;
} StatsRows;

static void
set_counters(const LeStatsInfo *stats, Datum *values, bool *nulls)
{
	for (int i = STATS_TERMS; i < STATS_NATTS; i++)
		nulls[i] = false;
	for (int i = 0; i < LE_COUNTERS; i++)
		values[counter_columns[i]] = Int64GetDatum(stats->counters[i]);
	values[STATS_CHANGES_LAST_HOUR] = Int64GetDatum(stats->changes_last_hour);
	nulls[STATS_LONGEST_RENEWAL_GAP] = stats->longest_gap == 0;
	values[STATS_LONGEST_RENEWAL_GAP] =
		IntervalPGetDatum(le_us_to_interval(stats->longest_gap));
	nulls[STATS_RESET] = stats->since == 0;
	values[STATS_RESET] = TimestampTzGetDatum(stats->since);
}

static bool
put_stats(const LeElection *election, void *arg)
{
	StatsRows  *rows = arg;
	Datum		values[STATS_NATTS];
	bool		nulls[STATS_NATTS];
	LeStatsInfo stats;

	memset(nulls, true, sizeof(nulls));
	values[STATS_ELECTION] = CStringGetTextDatum(election->election);
	nulls[STATS_ELECTION] = false;
	if (le_rights_may_see(election->owner) && !RecoveryInProgress() &&
		le_stats_get(rows->state, election->election, &stats))
		set_counters(&stats, values, nulls);
	tuplestore_putvalues(rows->info->setResult, rows->info->setDesc, values,
						 nulls);
	return true;
}

Datum
le_leader_election_stats(PG_FUNCTION_ARGS)
{
	StatsRows	rows;
	Relation	rel;

	rows.state = le_relations(fcinfo)->state;
	InitMaterializedSRF(fcinfo, 0);
	rows.info = (ReturnSetInfo *) fcinfo->resultinfo;
	if (!RecoveryInProgress())
		le_shmem_attach();
	rel = le_state_open(rows.state, AccessShareLock);
	le_store_scan_for(rel, le_asked_election(fcinfo), put_stats, &rows);
	table_close(rel, AccessShareLock);
	return (Datum) 0;
}

static bool
reset_stats(const LeElection *election, void *arg)
{
	if (le_rights_has(election->owner))
		le_stats_reset(*(Oid *) arg, election->election);
	return true;
}

Datum
le_leader_stats_reset(PG_FUNCTION_ARGS)
{
	Oid			state = le_relations(fcinfo)->state;
	char	   *election = PG_ARGISNULL(0) ? NULL :
		le_arg_name(fcinfo, 0, "election");
	Relation	rel;
	LeElection	row;

	le_require_primary();
	le_shmem_attach();
	rel = le_state_open(state, AccessShareLock);
	if (election == NULL)
	{
		le_store_scan(rel, reset_stats, &state);
		le_stats_keep_only(state);
	}
	else
	{
		le_store_read(rel, election, &row);
		if (row.exists)
		{
			le_rights_require(row.owner, election);
			le_stats_reset(state, election);
		}
	}
	table_close(rel, AccessShareLock);
	PG_RETURN_VOID();
}
