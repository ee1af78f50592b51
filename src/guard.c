/*-------------------------------------------------------------------------
 *
 * guard.c
 *	  The trigger that keeps manual changes away from the internal tables.
 *
 * Memory says what the rows say, and would not learn of a manual change: a
 * leader whose row is gone would go on as one.  Inserting stays free, for
 * dumps.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"

PG_FUNCTION_INFO_V1(le_leader_election_guard);

Datum
le_leader_election_guard(PG_FUNCTION_ARGS)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the rows of extension \"leader_election\" must not be changed by hand"),
			 errhint("Call leader_release() to end a term.")));
	PG_RETURN_NULL();
}
