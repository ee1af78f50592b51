/*-------------------------------------------------------------------------
 *
 * guard.c
 *	  The trigger that keeps manual changes away from the internal tables.
 *
 * Memory says what the rows say, and would not learn of a manual change: a
 * leader whose row is gone would go on as one.  Only the owner of the tables
 * may insert, as a restored dump does, whatever rights somebody was given.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/trigger.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(le_leader_election_guard);

Datum
le_leader_election_guard(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;

	if (CALLED_AS_TRIGGER(fcinfo) && TRIGGER_FIRED_BY_INSERT(data->tg_event) &&
		has_privs_of_role(GetUserId(), data->tg_relation->rd_rel->relowner))
		return PointerGetDatum(NULL);
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the rows of extension \"leader_election\" must not be changed by hand"),
			 errhint("Call leader_release() or leader_depose() to end a term.")));
	PG_RETURN_NULL();
}
