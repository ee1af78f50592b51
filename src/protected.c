/*-------------------------------------------------------------------------
 *
 * protected.c
 *	  The rows behind the view leader_protected.
 *
 * Every table that has a fence is listed, partitions and children too.  A
 * fence is in force if every way to write the table and what is below it
 * meets an enabled trigger that can judge it.  Problems are told in words,
 * first those of the table itself.
 *
 * Nobody is waited for: who watches must not hang behind an ALTER TABLE.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "catalog/pg_event_trigger.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "fence.h"
#include "guc.h"
#include "protect.h"
#include "template.h"

#define COVER_TRIGGER		"leader_election_cover"

PG_FUNCTION_INFO_V1(le_leader_election_protected);

enum
{
	PROTECTED_RELATION,
	PROTECTED_ELECTION,
	PROTECTED_EPOCH_COLUMN,
	PROTECTED_LEVEL,
	PROTECTED_REPLICA,
	PROTECTED_IN_FORCE,
	PROTECTED_PROBLEM,
	PROTECTED_NATTS
};

static void
add_problem(StringInfo problems, const char *where, const char *what)
{
	if (problems->len > 0)
		appendStringInfoString(problems, "; ");
	if (where)
		appendStringInfo(problems, "%s: ", where);
	appendStringInfoString(problems, what);
}

/* The tables that have a trigger which calls that function, each once */
static List *
fenced_tables(Oid function)
{
	Relation	triggers = table_open(TriggerRelationId, AccessShareLock);
	List	   *tables = NIL;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_trigger_tgfoid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(function));
	scan = systable_beginscan(triggers, InvalidOid, false, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		tables = lappend_oid(tables,
							 ((Form_pg_trigger) GETSTRUCT(tuple))->tgrelid);
	systable_endscan(scan);
	table_close(triggers, AccessShareLock);
	list_sort(tables, list_oid_cmp);
	list_deduplicate_oid(tables);
	return tables;
}

/* Judges one trigger; returns the events that it covers. */
static int
judge_trigger(const Trigger *trigger, bool replica, StringInfo problems,
			  const char *where)
{
	const char *why = NULL;

	if (trigger->tgqual != NULL || trigger->tgnattr > 0 ||
		!TRIGGER_FOR_BEFORE(trigger->tgtype) ||
		trigger->tgnargs < 1 || trigger->tgnargs > 2)
		why = "is not as leader_protect() makes it";
	else if (trigger->tgenabled == TRIGGER_DISABLED)
		why = "is disabled";
	else if (trigger->tgenabled == TRIGGER_FIRES_ON_REPLICA)
		why = "fires only while changes are applied as a replica";
	else if (replica && trigger->tgenabled != TRIGGER_FIRES_ALWAYS)
		why = "does not fire while changes are applied as a replica";
	if (why)
		add_problem(problems, where,
					psprintf("trigger \"%s\" %s", trigger->tgname, why));
	return trigger->tgtype & (TRIGGER_TYPE_INSERT | TRIGGER_TYPE_DELETE |
							  TRIGGER_TYPE_UPDATE | TRIGGER_TYPE_TRUNCATE);
}

static void
judge_triggers(Relation rel, Oid function, bool replica, StringInfo problems,
			   const char *where)
{
	static const struct
	{
		int			event;
		const char *name;
	}			events[] = {
		{TRIGGER_TYPE_INSERT, "INSERT"}, {TRIGGER_TYPE_UPDATE, "UPDATE"},
		{TRIGGER_TYPE_DELETE, "DELETE"}, {TRIGGER_TYPE_TRUNCATE, "TRUNCATE"}
	};
	int			covered = 0;

	for (int i = 0; rel->trigdesc && i < rel->trigdesc->numtriggers; i++)
	{
		const Trigger *trigger = &rel->trigdesc->triggers[i];

		if (trigger->tgfoid == function)
			covered |= judge_trigger(trigger, replica, problems, where);
	}
	for (int i = 0; i < (int) lengthof(events); i++)
	{
		if ((covered & events[i].event) == 0)
			add_problem(problems, where,
						psprintf("there is no trigger for %s", events[i].name));
	}
}

/* Can what the fence looks at in rows be found there, as it will be stored? */
static void
judge_rows(Relation rel, const LeProtection *p, StringInfo problems,
		   const char *where)
{
	bool		judges_row = p->column != NULL;

	if (p->column && !le_fence_has_epoch_column(rel, p->column))
		add_problem(problems, where,
					psprintf("epoch column \"%s\" is missing, or is not of type bigint and stored as given",
							 p->column));
	if (!le_template_fits(p->election, rel))
		add_problem(problems, where,
					psprintf("the name \"%s\" is malformed, or has columns that are missing or of another type",
							 p->election));
	else if (le_template_constant(le_template_parse(p->election, rel)) == NULL)
		judges_row = true;
	if (judges_row && p->by_row &&
		!le_fence_runs_last(rel->trigdesc, LE_FENCE_NAME))
		add_problem(problems, where,
					"a row trigger fires after the fence and could change the row");
	if (judges_row && !p->by_row)
		add_problem(problems, where, "there is no trigger for each row");
}

static bool
same_rule(const LeProtection *a, const LeProtection *b)
{
	return strcmp(a->election, b->election) == 0 &&
		(a->column == NULL) == (b->column == NULL) &&
		(a->column == NULL || strcmp(a->column, b->column) == 0);
}

/* A table, open without a wait; NULL if it has gone or somebody has locked it */
static Relation
open_unlocked(Oid relid)
{
	Relation	rel;

	if (!ConditionalLockRelationOid(relid, AccessShareLock))
		return NULL;
	rel = try_relation_open(relid, NoLock);
	if (rel == NULL)
		UnlockRelationOid(relid, AccessShareLock);
	return rel;
}

/* Tells the problems of one table whose protection was read. */
static void
judge_table(Relation rel, Oid function, bool replica, const LeProtection *p,
			StringInfo problems, const char *where)
{
	judge_triggers(rel, function, replica, problems, where);
	judge_rows(rel, p, problems, where);
	if (!p->by_row && le_protection_parents(RelationGetRelid(rel)) != NIL)
		add_problem(problems, where,
					"statements that name its parent are not judged");
}

static void judge_below(Relation rel, Oid function, const LeProtection *p,
						StringInfo problems);

/* What is below a table must be protected as it is, and so on. */
static void
judge_child(Oid relid, Oid function, const LeProtection *p,
			StringInfo problems)
{
	char	   *name = get_rel_name(relid);
	char	   *where;
	Relation	rel = open_unlocked(relid);
	LeProtection own;

	/* It is being dropped. */
	if (name == NULL && rel == NULL)
		return;
	where = psprintf("table \"%s\"",
					 name ? name : RelationGetRelationName(rel));
	if (rel == NULL)
	{
		add_problem(problems, where, "it is locked");
		return;
	}
	if (!le_protection_read(rel, function, &own))
		add_problem(problems, where, "it is not protected");
	else
	{
		judge_table(rel, function, p->replica, &own, problems, where);
		if (!same_rule(p, &own))
			add_problem(problems, where,
						"it has another election or epoch column");
	}
	judge_below(rel, function, p, problems);
	relation_close(rel, AccessShareLock);
}

/* The table itself is open, so that it cannot go while we look below it. */
static void
judge_below(Relation rel, Oid function, const LeProtection *p,
			StringInfo problems)
{
	ListCell   *lc;

	check_stack_depth();
	if (!rel->rd_rel->relhassubclass)
		return;
	foreach(lc, find_inheritance_children(RelationGetRelid(rel), NoLock))
		judge_child(lfirst_oid(lc), function, p, problems);
}

/* Would tables that join a protected one be covered? */
static bool
cover_trigger_enabled(void)
{
	HeapTuple	tuple = SearchSysCache1(EVENTTRIGGERNAME,
										CStringGetDatum(COVER_TRIGGER));
	bool		enabled = false;

	if (HeapTupleIsValid(tuple))
	{
		char		mode = ((Form_pg_event_trigger) GETSTRUCT(tuple))->evtenabled;

		enabled = mode == TRIGGER_FIRES_ON_ORIGIN ||
			mode == TRIGGER_FIRES_ALWAYS;
		ReleaseSysCache(tuple);
	}
	return enabled;
}

/* One row; p is NULL if the table could not be looked at. */
static void
put_table(Oid relid, const LeProtection *p, const StringInfoData *problems,
		  ReturnSetInfo *info)
{
	Datum		values[PROTECTED_NATTS];
	bool		nulls[PROTECTED_NATTS];

	memset(nulls, true, sizeof(nulls));
	nulls[PROTECTED_RELATION] = nulls[PROTECTED_IN_FORCE] = false;
	values[PROTECTED_RELATION] = ObjectIdGetDatum(relid);
	values[PROTECTED_IN_FORCE] = BoolGetDatum(problems->len == 0);
	if (problems->len > 0)
	{
		nulls[PROTECTED_PROBLEM] = false;
		values[PROTECTED_PROBLEM] = CStringGetTextDatum(problems->data);
	}
	if (p)
	{
		nulls[PROTECTED_ELECTION] = nulls[PROTECTED_LEVEL] =
			nulls[PROTECTED_REPLICA] = false;
		values[PROTECTED_ELECTION] = CStringGetTextDatum(p->election);
		values[PROTECTED_LEVEL] =
			CStringGetTextDatum(p->by_row ? "row" : "statement");
		values[PROTECTED_REPLICA] = BoolGetDatum(p->replica);
	}
	if (p && p->column)
	{
		nulls[PROTECTED_EPOCH_COLUMN] = false;
		values[PROTECTED_EPOCH_COLUMN] =
			DirectFunctionCall1(namein, CStringGetDatum(p->column));
	}
	tuplestore_putvalues(info->setResult, info->setDesc, values, nulls);
}

/* Does nothing for a table that is gone, or protected no longer. */
static void
look_at(Oid relid, Oid function, ReturnSetInfo *info)
{
	Relation	rel = open_unlocked(relid);
	StringInfoData problems;
	LeProtection p;

	initStringInfo(&problems);
	if (rel == NULL)
	{
		if (get_rel_name(relid) == NULL)
			return;
		add_problem(&problems, NULL, "it is locked");
		put_table(relid, NULL, &problems, info);
		return;
	}
	if (le_protection_read(rel, function, &p))
	{
		judge_table(rel, function, p.replica, &p, &problems, NULL);
		judge_below(rel, function, &p, &problems);
		if (rel->rd_rel->relhassubclass && !cover_trigger_enabled())
			add_problem(&problems, NULL,
						"event trigger \"" COVER_TRIGGER "\" is missing or disabled, so that new partitions and children are not covered");
		if (!le_enforce)
			add_problem(&problems, NULL, "leader_election.enforce is off");
		put_table(relid, &p, &problems, info);
	}
	relation_close(rel, AccessShareLock);
}

Datum
le_leader_election_protected(PG_FUNCTION_ARGS)
{
	Oid			function = le_fence_function(fcinfo);
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	foreach(lc, fenced_tables(function))
		look_at(lfirst_oid(lc), function,
				(ReturnSetInfo *) fcinfo->resultinfo);
	return (Datum) 0;
}
