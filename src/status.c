/*-------------------------------------------------------------------------
 *
 * status.c
 *	  The rows behind the view leader_status.
 *
 * Every election is listed; what it is about only to members of its owner and
 * to pg_read_all_stats.  On a standby there are no deadlines, so a term is
 * shown as the row has it and no time is claimed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "relations.h"
#include "rights.h"
#include "shmem.h"
#include "view.h"

PG_FUNCTION_INFO_V1(le_leader_election_status);

enum
{
	STATUS_ELECTION,
	STATUS_LEADER,
	STATUS_EPOCH,
	STATUS_KIND,
	STATUS_STATE,
	STATUS_TTL,
	STATUS_EXPIRES_IN,
	STATUS_ACQUIRED_AT,
	STATUS_METADATA,
	STATUS_OWNER,
	STATUS_TERMS,
	STATUS_NATTS
};

typedef struct Status
{
	ReturnSetInfo *info;
	Oid			state;
	Relation	metadata;
	bool		standby;
} Status;

static const char *
state_name(const LeView *view, bool standby)
{
	if (!view->row.held)
		return "free";
	if (standby)
		return "held";
	if (view->standing == LE_STANDING_LAPSED)
		return "expired";
	return view->unconfirmed ? "unconfirmed" : "held";
}

static bool
put_status(const LeElection *election, void *arg)
{
	Status	   *status = arg;
	Datum		values[STATUS_NATTS];
	bool		nulls[STATUS_NATTS];
	bool		standby = status->standby;
	LeKey		key = {status->state, election->election, election->epoch};
	LeView		view;

	memset(nulls, true, sizeof(nulls));
	values[STATUS_ELECTION] = CStringGetTextDatum(election->election);
	nulls[STATUS_ELECTION] = false;
	view.row = *election;
	if (!standby)
		le_view_watch(status->state, &view);

	if (le_rights_has(election->owner) ||
		has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS))
	{
		const char *state = state_name(&view, standby);
		bool		led = election->held && strcmp(state, "expired") != 0;

		memset(nulls, false, sizeof(nulls));
		nulls[STATUS_LEADER] = !led;
		if (led)
			values[STATUS_LEADER] = CStringGetTextDatum(election->holder);
		values[STATUS_EPOCH] = Int64GetDatum(election->epoch);
		values[STATUS_KIND] = CStringGetTextDatum("lease");
		values[STATUS_STATE] = CStringGetTextDatum(state);
		values[STATUS_TTL] = IntervalPGetDatum(le_us_to_interval(election->ttl));
		nulls[STATUS_EXPIRES_IN] = !led || standby;
		if (!nulls[STATUS_EXPIRES_IN])
			values[STATUS_EXPIRES_IN] =
				IntervalPGetDatum(le_us_to_interval(view.deadline - view.now));
		nulls[STATUS_ACQUIRED_AT] = !election->held;
		values[STATUS_ACQUIRED_AT] = TimestampTzGetDatum(election->acquired_at);
		nulls[STATUS_METADATA] = !led ||
			!le_store_get_metadata(status->metadata, &key,
								   &values[STATUS_METADATA]);
		values[STATUS_OWNER] = CStringGetTextDatum(election->owner);
		values[STATUS_TERMS] = Int64GetDatum(election->terms);
	}
	tuplestore_putvalues(status->info->setResult, status->info->setDesc,
						 values, nulls);
	return true;
}

Datum
le_leader_election_status(PG_FUNCTION_ARGS)
{
	Status		status;
	Relation	rel;
	LeRelations relations = *le_relations(fcinfo);

	InitMaterializedSRF(fcinfo, 0);
	status.info = (ReturnSetInfo *) fcinfo->resultinfo;
	status.state = relations.state;
	status.standby = RecoveryInProgress();
	if (!status.standby)
		le_shmem_attach();
	rel = le_state_open(status.state, AccessShareLock);
	status.metadata = le_metadata_open(relations.metadata, AccessShareLock);
	le_store_scan(rel, put_status, &status);
	table_close(status.metadata, AccessShareLock);
	table_close(rel, AccessShareLock);
	return (Datum) 0;
}
