/*-------------------------------------------------------------------------
 *
 * history.c
 *	  Deletes rows of the history.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "history.h"
#include "lock.h"

static ArrayType *
names_array(List *elections)
{
	Datum	   *names = palloc(Max(list_length(elections), 1) * sizeof(Datum));
	int			n = 0;
	ListCell   *lc;

	foreach(lc, elections)
		names[n++] = CStringGetTextDatum(lfirst(lc));
	return construct_array(names, n, TEXTOID, -1, false, TYPALIGN_INT);
}

static void
spi_failed(int result)
{
	ereport(ERROR,
			(errcode(ERRCODE_INTERNAL_ERROR),
			 errmsg("could not delete from the history: %s",
					SPI_result_code_string(result))));
}

int64
le_history_delete(const LeRelations *relations, List *elections,
				  TimestampTz ended_before)
{
	Oid			types[] = {TEXTARRAYOID, TIMESTAMPTZOID};
	Datum		values[2];
	char	   *table = get_rel_name(relations->history);
	char	   *command;
	SPIPlanPtr	plan;
	int			result;
	int			saved_timeout = LockTimeout;
	int64		deleted;
	Oid			user;
	int			context;

	if (elections == NIL)
		return 0;
	values[0] = PointerGetDatum(names_array(elections));
	values[1] = TimestampTzGetDatum(ended_before);
	command = psprintf("DELETE FROM ONLY %s WHERE election OPERATOR(pg_catalog.=) ANY ($1) "
					   "AND ended_at OPERATOR(pg_catalog.<) $2",
					   quote_qualified_identifier(get_namespace_name(get_rel_namespace(relations->history)),
												  table));

	/* Callers have no rights on the table. */
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(relations->owner, context |
						   SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	SPI_connect();
	plan = SPI_prepare(command, lengthof(types), types);
	if (plan == NULL)
		spi_failed(SPI_result);
	PG_TRY();
	{
		/* Somebody else may be at it, and not come to an end. */
		LockTimeout = le_lock_limit();
		result = SPI_execute_snapshot(plan, values, NULL, GetLatestSnapshot(),
									  InvalidSnapshot, false, true, 0);
	}
	PG_FINALLY();
	{
		LockTimeout = saved_timeout;
	}
	PG_END_TRY();
	if (result != SPI_OK_DELETE)
		spi_failed(result);
	deleted = SPI_processed;
	SPI_finish();
	SetUserIdAndSecContext(user, context);
	return deleted;
}
