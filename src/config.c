/*-------------------------------------------------------------------------
 *
 * config.c
 *	  What holds for every term of an election.
 *
 * It stands in a table of its own, as the row that the fence reads changes only
 * when a term begins or ends.  Most elections have no row there.
 *
 * Takeovers are counted by the wall clock, as they are to be remembered over
 * restarts.  One in the future, since the clock was set back, counts as recent.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "catalog/pg_type.h"
#include "storage/bufmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "config.h"
#include "relations.h"
#include "row.h"

static void
set_default(LeConfig *config)
{
	memset(config, 0, sizeof(LeConfig));
	config->failover_window = LE_FAILOVER_WINDOW_DEFAULT;
}

static int64
get_int64(TupleTableSlot *slot, int column)
{
	return slot->tts_isnull[column - 1] ? 0 :
		DatumGetInt64(slot->tts_values[column - 1]);
}

static void
get_takeovers(TupleTableSlot *slot, LeConfig *config)
{
	Datum	   *times;
	bool	   *nulls;
	int			count;

	if (slot->tts_isnull[LE_CONFIG_TAKEOVERS - 1])
		return;
	deconstruct_array(DatumGetArrayTypeP(slot->tts_values[LE_CONFIG_TAKEOVERS - 1]),
					  TIMESTAMPTZOID, sizeof(TimestampTz), FLOAT8PASSBYVAL,
					  TYPALIGN_DOUBLE, &times, &nulls, &count);
	for (int i = 0; i < count && config->ntakeovers < LE_FAILOVER_LIMIT_MAX; i++)
	{
		if (!nulls[i])
			config->takeovers[config->ntakeovers++] =
				DatumGetTimestampTz(times[i]);
	}
}

void
le_config_read(Relation rel, const char *election, LeConfig *config)
{
	TupleTableSlot *slot;

	set_default(config);
	/* Where nothing was ever configured, a grant need not look for it. */
	if (RelationGetNumberOfBlocks(rel) == 0)
		return;
	slot = table_slot_create(rel, NULL);
	if (le_row_fetch(rel, election, slot))
	{
		slot_getallattrs(slot);
		config->exists = true;
		config->paused = !slot->tts_isnull[LE_CONFIG_PAUSED - 1] &&
			DatumGetBool(slot->tts_values[LE_CONFIG_PAUSED - 1]);
		config->ttl = get_int64(slot, LE_CONFIG_TTL);
		config->lock_delay = get_int64(slot, LE_CONFIG_LOCK_DELAY);
		config->failover_limit = Min(get_int64(slot, LE_CONFIG_FAILOVER_LIMIT),
									 LE_FAILOVER_LIMIT_MAX);
		config->failover_window = get_int64(slot, LE_CONFIG_FAILOVER_WINDOW);
		get_takeovers(slot, config);
	}
	ExecDropSingleTupleTableSlot(slot);
}

static Datum
takeovers_datum(const LeConfig *config)
{
	Datum		times[LE_FAILOVER_LIMIT_MAX];

	for (int i = 0; i < config->ntakeovers; i++)
		times[i] = TimestampTzGetDatum(config->takeovers[i]);
	return PointerGetDatum(construct_array(times, config->ntakeovers,
										   TIMESTAMPTZOID, sizeof(TimestampTz),
										   FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

void
le_config_write(Relation rel, const char *election, const LeConfig *config)
{
	TupleTableSlot *old = table_slot_create(rel, NULL);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	bool		exists = le_row_fetch(rel, election, old);
	Datum	   *values = slot->tts_values - 1;

	ExecClearTuple(slot);
	memset(slot->tts_isnull, 0, LE_CONFIG_NATTS * sizeof(bool));
	values[LE_CONFIG_ELECTION] = CStringGetTextDatum(election);
	values[LE_CONFIG_PAUSED] = BoolGetDatum(config->paused);
	values[LE_CONFIG_TTL] = Int64GetDatum(config->ttl);
	values[LE_CONFIG_LOCK_DELAY] = Int64GetDatum(config->lock_delay);
	values[LE_CONFIG_FAILOVER_LIMIT] = Int64GetDatum(config->failover_limit);
	values[LE_CONFIG_FAILOVER_WINDOW] = Int64GetDatum(config->failover_window);
	values[LE_CONFIG_TAKEOVERS] = takeovers_datum(config);
	ExecStoreVirtualTuple(slot);
	le_row_put(rel, slot, exists ? &old->tts_tid : NULL);
	ExecDropSingleTupleTableSlot(slot);
	ExecDropSingleTupleTableSlot(old);
}

bool
le_config_count_takeover(LeConfig *config, TimestampTz now)
{
	int			kept = 0;

	if (config->failover_limit <= 0)
		return false;
	for (int i = 0; i < config->ntakeovers; i++)
	{
		if (config->takeovers[i] > now - config->failover_window)
			config->takeovers[kept++] = config->takeovers[i];
	}
	if (kept == LE_FAILOVER_LIMIT_MAX)
		memmove(config->takeovers, config->takeovers + 1,
				--kept * sizeof(TimestampTz));
	config->takeovers[kept++] = now;
	config->ntakeovers = kept;
	if (kept >= config->failover_limit)
		config->paused = true;
	return true;
}
