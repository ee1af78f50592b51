/*-------------------------------------------------------------------------
 *
 * relations.c
 *	  The extension's own tables and sequences.
 *
 * OIDs are remembered for as long as no invalidation concerns them: dropping,
 * renaming or altering one of the relations sends one.  That a table still
 * looks as the extension made it is asked at each open, as a superuser may
 * alter it, and rows are read by column number.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "relations.h"

static const Oid state_types[LE_STATE_NATTS] = {
	TEXTOID, NAMEOID, CHAROID, INT8OID, INT8OID, INT8OID, TIMESTAMPTZOID,
	TEXTOID
};
static const Oid metadata_types[LE_METADATA_NATTS] = {
	TEXTOID, INT8OID, JSONBOID
};
static const Oid history_types[LE_HISTORY_NATTS] = {
	TEXTOID, INT8OID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID
};

static const Oid config_types[LE_CONFIG_NATTS] = {
	TEXTOID, BOOLOID, INT8OID, INT8OID, INT8OID, INT8OID, TIMESTAMPTZARRAYOID
};

/* How often relations are looked up that seem to change meanwhile */
#define MAX_ATTEMPTS		3

static LeRelations known;
static uint64 invalidations = 0;
static Oid	known_namespace = InvalidOid;	/* whose relations are known */

static void
forget_relations(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == known.state ||
		relid == known.metadata || relid == known.config ||
		relid == known.history ||
		relid == known.epoch ||
		relid == known.identity || relid == known.drawn_at)
		known_namespace = InvalidOid;
	invalidations++;
}

void
le_relations_init(void)
{
	CacheRegisterRelcacheCallback(forget_relations, (Datum) 0);
}

static Oid
find_relation(Oid namespace, const char *name)
{
	Oid			relid = get_relname_relid(name, namespace);

	if (!OidIsValid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("relation \"%s\" of extension \"leader_election\" does not exist",
						name),
				 errhint("Drop the extension and create it again.")));
	return relid;
}

static Oid
relation_owner(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Oid			owner = InvalidOid;

	if (HeapTupleIsValid(tuple))
	{
		owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
		ReleaseSysCache(tuple);
	}
	return owner;
}

static void
find_relations(Oid namespace, LeRelations *found)
{
	found->state = find_relation(namespace, "leader_election_state");
	found->metadata = find_relation(namespace, "leader_election_metadata");
	found->config = find_relation(namespace, "leader_election_config");
	found->history = find_relation(namespace, "leader_election_history");
	found->epoch = find_relation(namespace, "leader_election_epoch");
	found->identity = find_relation(namespace, "leader_election_epoch_identity");
	found->drawn_at = find_relation(namespace, "leader_election_epoch_drawn_at");
	found->owner = relation_owner(found->epoch);
}

const LeRelations *
le_relations(FunctionCallInfo fcinfo)
{
	Oid			namespace;
	LeRelations found;
	uint64		before;

	/* A function that is labelled parallel safe may call ours. */
	PreventCommandIfParallelMode("a function of leader_election");

	/*
	 * A backend meets one installation at a time, so whose function calls is
	 * asked only when nothing is known.
	 */
	if (OidIsValid(known_namespace))
		return &known;

	/*
	 * The lookups take in invalidations, and a mixture must not be kept.  A
	 * server that discards its caches all the time has one at each lookup:
	 * then nothing is kept.
	 */
	for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++)
	{
		before = invalidations;
		namespace = get_func_namespace(fcinfo->flinfo->fn_oid);
		find_relations(namespace, &found);
		if (before == invalidations)
		{
			known_namespace = namespace;
			break;
		}
	}
	known = found;
	return &known;
}

bool
le_relations_include(const LeRelations *relations, Oid relid)
{
	return relid == relations->state || relid == relations->metadata ||
		relid == relations->config || relid == relations->history;
}

Oid
le_relations_config(Oid state)
{
	return known.state == state ? known.config : InvalidOid;
}

static Relation
open_checked(Oid relid, LOCKMODE lockmode, int natts, const Oid *types)
{
	Relation	rel = try_relation_open(relid, lockmode);
	bool		intact = rel != NULL && rel->rd_rel->relkind == RELKIND_RELATION;

	if (intact)
	{
		TupleDesc	desc = RelationGetDescr(rel);

		intact = desc->natts == natts;
		for (int i = 0; intact && i < natts; i++)
			intact = TupleDescAttr(desc, i)->atttypid == types[i] &&
				!TupleDescAttr(desc, i)->attisdropped;
	}
	if (!intact)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a table of extension \"leader_election\" has been altered or dropped"),
				 errhint("Drop the extension and create it again.")));
	return rel;
}

Relation
le_state_open(Oid state, LOCKMODE lockmode)
{
	return open_checked(state, lockmode, LE_STATE_NATTS, state_types);
}

Relation
le_metadata_open(Oid metadata, LOCKMODE lockmode)
{
	return open_checked(metadata, lockmode, LE_METADATA_NATTS, metadata_types);
}

Relation
le_config_open(Oid config, LOCKMODE lockmode)
{
	return open_checked(config, lockmode, LE_CONFIG_NATTS, config_types);
}

Relation
le_history_open(Oid history, LOCKMODE lockmode)
{
	return open_checked(history, lockmode, LE_HISTORY_NATTS, history_types);
}
