/*-------------------------------------------------------------------------
 *
 * protect.c
 *	  leader_protect() and leader_unprotect(): install and remove fences.
 *
 * A fence is one or two triggers with leader_fence_check(): a statement
 * trigger for everything, or a row trigger and a statement trigger for
 * TRUNCATE. By row is protected whatever the rows of a table say by which
 * token, and whatever can be written through another table: the server clones
 * row triggers to partitions, and fires those of a child for a statement that
 * names its parent.  So every table below a protected one is protected by
 * row, with the same arguments; cover.c keeps it so.  The names of the
 * triggers sort behind what people write.
 *
 * The triggers are made and dropped as the commands for it do, as the caller:
 * it needs the rights of the table's owner, and gets dependencies and dump
 * for free.
 *
 * Tables are locked from the top downwards.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/catalog.h"
#include "catalog/dependency.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "arguments.h"
#include "compat.h"
#include "fence.h"
#include "protect.h"
#include "relations.h"
#include "rights.h"
#include "store.h"
#include "template.h"

#define FENCE_FUNCTION		"leader_fence_check"

/* What CREATE TRIGGER and DROP TRIGGER take */
#define PROTECT_LOCK		ShareRowExclusiveLock
#define UNPROTECT_LOCK		AccessExclusiveLock

PG_FUNCTION_INFO_V1(le_leader_protect);
PG_FUNCTION_INFO_V1(le_leader_unprotect);

static void
wrong_relation(Relation rel, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("cannot protect relation \"%s\"",
					RelationGetRelationName(rel)),
			 errdetail("%s", detail)));
}

static void
check_relation(Relation rel)
{
	if (IsSystemRelation(rel))
		wrong_relation(rel, "It is a system catalog.");
	if (RELATION_IS_OTHER_TEMP(rel))
		wrong_relation(rel, "It is a temporary table of another session.");
	if (rel->rd_rel->relkind != RELKIND_RELATION &&
		rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		wrong_relation(rel, "Only ordinary and partitioned tables can be protected.");
}

List *
le_protection_parents(Oid relid)
{
	Relation	inherits = table_open(InheritsRelationId, AccessShareLock);
	List	   *parents = NIL;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_inherits_inhrelid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(relid));
	scan = systable_beginscan(inherits, InheritsRelidSeqnoIndexId, true, NULL,
							  1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		parents = lappend_oid(parents,
							  ((Form_pg_inherits) GETSTRUCT(tuple))->inhparent);
	systable_endscan(scan);
	table_close(inherits, AccessShareLock);
	return parents;
}

/* The fence trigger of that name, or the first one for NULL; NULL if none. */
static const Trigger *
find_fence(Relation rel, Oid function, const char *name)
{
	for (int i = 0; rel->trigdesc && i < rel->trigdesc->numtriggers; i++)
	{
		const Trigger *trigger = &rel->trigdesc->triggers[i];

		if (trigger->tgfoid == function &&
			(name == NULL || strcmp(trigger->tgname, name) == 0))
			return trigger;
	}
	return NULL;
}

bool
le_protection_read(Relation rel, Oid function, LeProtection *protection)
{
	const Trigger *trigger = find_fence(rel, function, LE_FENCE_NAME);

	if (trigger == NULL)
		trigger = find_fence(rel, function, NULL);
	if (trigger == NULL)
		return false;
	protection->election = trigger->tgnargs > 0 ?
		pstrdup(trigger->tgargs[0]) : pstrdup("");
	protection->column = trigger->tgnargs > 1 ?
		pstrdup(trigger->tgargs[1]) : NULL;
	protection->by_row = TRIGGER_FOR_ROW(trigger->tgtype);
	protection->replica = trigger->tgenabled == TRIGGER_FIRES_ALWAYS;
	return true;
}

/* Whoever protects a table by an election that exists must be a member. */
static void
check_election(Oid state, const char *election)
{
	Relation	rel = le_state_open(state, AccessShareLock);
	LeElection	row;

	le_store_read(rel, election, &row);
	table_close(rel, AccessShareLock);
	if (row.exists)
		le_rights_require(row.owner, election);
}

/*
 * The lock on a table may have been waited for, and the extension be gone.  No
 * right on its schema is needed: this is asked for everybody's DDL.
 */
Oid
le_fence_function(FunctionCallInfo fcinfo)
{
	Oid			namespace = get_func_namespace(fcinfo->flinfo->fn_oid);
	oidvector  *no_arguments = buildoidvector(NULL, 0);
	Oid			function = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid,
										   CStringGetDatum(FENCE_FUNCTION),
										   PointerGetDatum(no_arguments),
										   ObjectIdGetDatum(namespace));

	if (!OidIsValid(function))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"leader_election\" was dropped meanwhile")));
	return function;
}

/* Refuses what the fence of a table could not work with. */
static void
check_rows(Relation rel, const LeProtection *p)
{
	LeTemplate *election = le_template_parse(p->election, rel);

	if (p->column)
		(void) le_fence_epoch_column(rel, p->column);
	if ((p->column || le_template_constant(election) == NULL) &&
		!le_fence_runs_last(rel->trigdesc, LE_FENCE_NAME))
		le_fence_not_last(rel);
}

/* Is that trigger there?  If so, it must be the one that would be made. */
static bool
has_trigger(Relation rel, Oid function, const char *name,
			const LeProtection *p, bool by_row)
{
	const Trigger *trigger = find_fence(rel, function, name);

	if (trigger == NULL)
		return false;
	if (TRIGGER_FOR_ROW(trigger->tgtype) != by_row ||
		trigger->tgnargs != (p->column ? 2 : 1) ||
		strcmp(trigger->tgargs[0], p->election) != 0 ||
		(p->replica && trigger->tgenabled != TRIGGER_FIRES_ALWAYS) ||
		(p->column && strcmp(trigger->tgargs[1], p->column) != 0))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" is protected in another way than its parent",
						RelationGetRelationName(rel)),
				 errhint("Call leader_unprotect() for it first.")));
	return true;
}

/*
 * Makes a trigger as CREATE TRIGGER does, but for the name of the function: who
 * owns a table may make partitions of it without rights on our schema.
 */
static void
create_trigger(Oid relid, Oid function, const LeProtection *p,
			   const char *name, int16 events, bool by_row)
{
	CreateTrigStmt *stmt = makeNode(CreateTrigStmt);

	stmt->trigname = pstrdup(name);
	stmt->args = list_make1(makeString(pstrdup(p->election)));
	if (p->column)
		stmt->args = lappend(stmt->args, makeString(pstrdup(p->column)));
	stmt->row = by_row;
	stmt->timing = TRIGGER_TYPE_BEFORE;
	stmt->events = events;
	(void) CreateTriggerFiringOn(stmt, NULL, relid, InvalidOid, InvalidOid,
								 InvalidOid, function, InvalidOid, NULL,
								 false, false, p->replica ?
								 TRIGGER_FIRES_ALWAYS : TRIGGER_FIRES_ON_ORIGIN);
	CommandCounterIncrement();
}

void
le_protection_install(Oid relid, const LeProtection *p, Oid function)
{
	Relation	rel = table_open(relid, ShareRowExclusiveLock);
	int16		writes = TRIGGER_TYPE_INSERT | TRIGGER_TYPE_UPDATE |
		TRIGGER_TYPE_DELETE;
	bool		has_main;
	bool		has_truncate;

	check_relation(rel);
	check_rows(rel, p);
	has_main = has_trigger(rel, function, LE_FENCE_NAME, p, p->by_row);
	has_truncate = !p->by_row ||
		has_trigger(rel, function, LE_FENCE_NAME_TRUNCATE, p, false);
	table_close(rel, NoLock);
	if (!has_main)
		create_trigger(relid, function, p, LE_FENCE_NAME, p->by_row ? writes :
					   writes | TRIGGER_TYPE_TRUNCATE, p->by_row);
	if (!has_truncate)
		create_trigger(relid, function, p, LE_FENCE_NAME_TRUNCATE,
					   TRIGGER_TYPE_TRUNCATE, false);
}

static void
require_owner(Oid relid)
{
	char	   *name = get_rel_name(relid);

	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	if (!object_ownercheck(RelationRelationId, relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, name);
}

/*
 * The caller's own table, locked at once as the commands to come will lock
 * it: to raise the lock later could be a deadlock.  Whose it is is asked
 * before, as nobody may so much as queue for a lock on another's, and again
 * after.
 */
static Relation
open_table(FunctionCallInfo fcinfo, LOCKMODE mode)
{
	Oid			relid;
	Relation	rel;

	/* To the end of the transaction: the extension must not be dropped. */
	table_close(le_state_open(le_relations(fcinfo)->state, AccessShareLock),
				NoLock);
	le_require_primary();
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("relation must not be null")));
	relid = PG_GETARG_OID(0);
	require_owner(relid);
	rel = try_relation_open(relid, mode);
	require_owner(relid);
	return rel;
}

/* The table and what is below it, each the caller's own, and locked. */
static List *
whole_tree(Oid relid, LOCKMODE mode)
{
	List	   *tree = find_all_inheritors(relid, mode, NULL);
	ListCell   *lc;

	foreach(lc, tree)
		require_owner(lfirst_oid(lc));
	return tree;
}

static void
refuse_protected(Oid relid, Oid function)
{
	Relation	rel = table_open(relid, NoLock);

	if (find_fence(rel, function, NULL))
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("table \"%s\" is already protected",
						RelationGetRelationName(rel)),
				 errhint("Call leader_unprotect() first.")));
	table_close(rel, NoLock);
}

static void
protect_tree(List *tree, LeProtection *p, Oid function)
{
	ListCell   *lc;

	foreach(lc, tree)
		refuse_protected(lfirst_oid(lc), function);
	foreach(lc, tree)
	{
		le_protection_install(lfirst_oid(lc), p, function);
		/* What is below another one can be written through that. */
		p->by_row = true;
	}
}

Datum
le_leader_protect(PG_FUNCTION_ARGS)
{
	Relation	rel = open_table(fcinfo, PROTECT_LOCK);
	Oid			relid = RelationGetRelid(rel);
	LeProtection p;
	LeTemplate *election;

	if (le_relations_include(le_relations(fcinfo), relid))
		wrong_relation(rel, "It is a table of extension \"leader_election\".");
	p.election = le_arg_name(fcinfo, 1, "election");
	p.column = PG_ARGISNULL(2) ? NULL : NameStr(*PG_GETARG_NAME(2));
	p.replica = !PG_ARGISNULL(3) && PG_GETARG_BOOL(3);
	check_relation(rel);
	election = le_template_parse(p.election, rel);
	if (le_template_constant(election))
		check_election(le_relations(fcinfo)->state,
					   le_template_constant(election));
	if (p.column)
		(void) le_fence_epoch_column(rel, p.column);
	else if (p.replica)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("protection of replicated changes needs an epoch column"),
				 errdetail("Changes are applied by row, and present no token of their own.")));
	p.by_row = p.column != NULL || le_template_constant(election) == NULL ||
		rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE ||
		has_superclass(relid);
	table_close(rel, NoLock);
	protect_tree(whole_tree(relid, PROTECT_LOCK), &p, le_fence_function(fcinfo));
	PG_RETURN_VOID();
}

/* The name of a protected table right above that one; NULL if there is none */
static char *
protected_parent(Oid relid, Oid function)
{
	char	   *name = NULL;
	ListCell   *lc;

	foreach(lc, le_protection_parents(relid))
	{
		Relation	parent = table_open(lfirst_oid(lc), AccessShareLock);

		if (find_fence(parent, function, NULL))
			name = pstrdup(RelationGetRelationName(parent));
		table_close(parent, AccessShareLock);
	}
	return name;
}

/*
 * Only together with what is above it: a fence of the parent that does not
 * reach its children would be none.
 */
static void
refuse_protected_parent(Oid relid, Oid function)
{
	char	   *parent = protected_parent(relid, function);

	if (parent)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" is protected through its parent \"%s\"",
						get_rel_name(relid), parent),
				 errhint("Call leader_unprotect() for the parent.")));
}

/* The fences that can be dropped: those that the server cloned go with theirs. */
static void
unprotect_table(Oid relid, Oid function)
{
	Relation	rel = table_open(relid, NoLock);
	ObjectAddresses *fences = new_object_addresses();

	for (int i = 0; rel->trigdesc && i < rel->trigdesc->numtriggers; i++)
	{
		const Trigger *trigger = &rel->trigdesc->triggers[i];
		ObjectAddress address;

		if (trigger->tgfoid != function || trigger->tgisclone)
			continue;
		ObjectAddressSet(address, TriggerRelationId, trigger->tgoid);
		add_exact_object_address(&address, fences);
	}
	table_close(rel, NoLock);
	performMultipleDeletions(fences, DROP_RESTRICT, 0);
	free_object_addresses(fences);
	CommandCounterIncrement();
}

/*
 * A table that is also below another protected one stays protected, with what
 * is below it.  Parents need not stand before their children in the list.
 */
static void
unprotect_tree(List *tree, Oid function)
{
	int			left;

	do
	{
		ListCell   *lc;

		left = list_length(tree);
		foreach(lc, tree)
		{
			if (protected_parent(lfirst_oid(lc), function) == NULL)
			{
				unprotect_table(lfirst_oid(lc), function);
				tree = foreach_delete_current(tree, lc);
			}
		}
	} while (list_length(tree) < left);
}

Datum
le_leader_unprotect(PG_FUNCTION_ARGS)
{
	Relation	rel = open_table(fcinfo, UNPROTECT_LOCK);
	Oid			relid = RelationGetRelid(rel);
	Oid			function = le_fence_function(fcinfo);

	if (find_fence(rel, function, NULL) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("table \"%s\" is not protected",
						RelationGetRelationName(rel))));
	table_close(rel, NoLock);
	refuse_protected_parent(relid, function);
	unprotect_tree(whole_tree(relid, UNPROTECT_LOCK), function);
	PG_RETURN_VOID();
}
