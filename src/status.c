/*-------------------------------------------------------------------------
 *
 * status.c
 *	  The rows behind the views leader_status and leader_term.
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
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "asked.h"
#include "clock.h"
#include "config.h"
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
	STATUS_PID,
	STATUS_PAUSED,
	STATUS_HOLDER,
	STATUS_ENDED_AT,
	STATUS_END_REASON,
	STATUS_NATTS
};

typedef struct Status
{
	ReturnSetInfo *info;
	Oid			state;
	Relation	metadata;
	Relation	config;
	bool		standby;
	Datum		values[STATUS_NATTS];	/* of the row being built */
	bool		nulls[STATUS_NATTS];
} Status;

static void
set(Status *status, int column, Datum value)
{
	status->values[column] = value;
	status->nulls[column] = false;
}

static void
set_text(Status *status, int column, const char *value)
{
	set(status, column, CStringGetTextDatum(value));
}

static void
set_interval(Status *status, int column, int64 us)
{
	if (us > 0 && us != LE_FOREVER)
		set(status, column, IntervalPGetDatum(le_us_to_interval(us)));
}

/* What is known of every election, led or not */
static void
set_election(Status *status, const LeElection *election, const char *state)
{
	LeConfig	config;

	le_config_read(status->config, election->election, &config);
	set(status, STATUS_PAUSED, BoolGetDatum(config.paused));
	if (election->epoch > 0)
		set(status, STATUS_EPOCH, Int64GetDatum(election->epoch));
	set_text(status, STATUS_KIND,
			 election->kind == LE_KIND_EXTERNAL ? "external" :
			 election->kind == LE_KIND_SESSION ? "session" : "lease");
	set_text(status, STATUS_STATE, state);
	set_interval(status, STATUS_TTL, election->ttl);
	set_text(status, STATUS_OWNER, election->owner);
	set(status, STATUS_TERMS, Int64GetDatum(election->terms));
	if (le_election_is_led(election))
		set(status, STATUS_ACQUIRED_AT,
			TimestampTzGetDatum(election->acquired_at));
	if (election->held)
		set_text(status, STATUS_HOLDER, election->holder);
}

/* What is known of one that is led */
static void
set_leader(Status *status, const LeView *view)
{
	LeKey		key = {status->state, view->row.election, view->row.epoch};
	Datum		metadata;

	set_text(status, STATUS_LEADER, view->row.holder);
	if (le_store_get_metadata(status->metadata, &key, &metadata))
		set(status, STATUS_METADATA, metadata);
	if (status->standby)
		return;
	set_interval(status, STATUS_EXPIRES_IN,
				 le_clock_left(view->deadline, view->now));
	if (view->pid != 0)
		set(status, STATUS_PID, Int32GetDatum(view->pid));
}

static void
set_all(Status *status, LeView *view)
{
	const LeElection *election = &view->row;
	TimestampTz ended_at;
	const char *reason = NULL;

	if (!status->standby)
	{
		le_view_watch(status->state, view);
		reason = le_view_end(view, GetCurrentTimestamp(), &ended_at);
	}
	set_election(status, election,
				 !le_election_is_led(election) ? "free" :
				 reason ? "expired" :
				 !status->standby && view->unconfirmed ? "unconfirmed" : "held");
	if (election->held && reason == NULL)
		set_leader(status, view);
	if (reason)
	{
		set_text(status, STATUS_END_REASON, reason);
		set(status, STATUS_ENDED_AT, TimestampTzGetDatum(ended_at));
	}
}

static bool
put_status(const LeElection *election, void *arg)
{
	Status	   *status = arg;
	LeView		view;

	memset(status->nulls, true, sizeof(status->nulls));
	set_text(status, STATUS_ELECTION, election->election);
	view.row = *election;
	if (le_rights_may_see(election->owner))
		set_all(status, &view);
	tuplestore_putvalues(status->info->setResult, status->info->setDesc,
						 status->values, status->nulls);
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
	status.config = le_config_open(relations.config, AccessShareLock);
	le_store_scan_for(rel, le_asked_election(fcinfo), put_status, &status);
	table_close(status.config, AccessShareLock);
	table_close(status.metadata, AccessShareLock);
	table_close(rel, AccessShareLock);
	return (Datum) 0;
}
