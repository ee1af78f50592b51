/*-------------------------------------------------------------------------
 *
 * cover.c
 *	  Keeps tables covered that become part of a protected one.
 *
 * An event trigger looks at every command that makes a table a partition or a
 * child of another.  What then lies below a protected table gets the fences
 * that it lacks; a table with a fence for statements is refused, as it can now
 * be written by statements that name its parent.
 *
 * Only such commands are looked at: when a dump is restored, tables are put
 * together before there is a trigger, and fences are not to be made twice.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_inherits.h"
#include "commands/event_trigger.h"
#include "executor/spi.h"
#include "nodes/parsenodes.h"
#include "tcop/deparse_utility.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

#include "protect.h"

PG_FUNCTION_INFO_V1(le_leader_election_cover);

/* Refuses a fence for statements on a table that has parents. */
static void
check_level(Oid relid, Oid function)
{
	Relation	rel = table_open(relid, NoLock);
	LeProtection own;

	if (le_protection_read(rel, function, &own) && !own.by_row &&
		le_protection_parents(relid) != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("protected table \"%s\" cannot become a partition or child of another table",
						RelationGetRelationName(rel)),
				 errdetail("Its fence judges statements that name it, and it could be written by others."),
				 errhint("Call leader_unprotect() before and leader_protect() after it.")));
	table_close(rel, NoLock);
}

static bool
read_protection(Oid relid, Oid function, LeProtection *protection)
{
	Relation	rel = table_open(relid, AccessShareLock);
	bool		found = le_protection_read(rel, function, protection);

	table_close(rel, AccessShareLock);
	return found;
}

/* A table that has perhaps become part of others, and all that is below it */
static void
cover_tree(Oid relid, Oid function)
{
	List	   *parents = le_protection_parents(relid);
	List	   *tree;
	ListCell   *lc;
	ListCell   *member;

	if (parents == NIL)
		return;
	tree = find_all_inheritors(relid, ShareRowExclusiveLock, NULL);
	foreach(lc, parents)
	{
		LeProtection protection;

		if (!read_protection(lfirst_oid(lc), function, &protection))
			continue;
		protection.by_row = true;
		foreach(member, tree)
			le_protection_install(lfirst_oid(member), &protection, function);
	}
	foreach(member, tree)
		check_level(lfirst_oid(member), function);
}

/*
 * The tables that this transaction has put right below that one.  Not every
 * major notes which partition was attached.
 */
static List *
new_children(Oid parent)
{
	Relation	inherits = table_open(InheritsRelationId, AccessShareLock);
	List	   *children = NIL;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_inherits_inhparent, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(parent));
	scan = systable_beginscan(inherits, InheritsParentIndexId, true, NULL,
							  1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		if (TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data)))
			children = lappend_oid(children,
								   ((Form_pg_inherits) GETSTRUCT(tuple))->inhrelid);
	}
	systable_endscan(scan);
	table_close(inherits, AccessShareLock);
	return children;
}

/* The tables that a command has put below others, by what the server noted */
static List *
joined_tables(const CollectedCommand *command)
{
	List	   *joined = NIL;
	ListCell   *lc;

	if (command->type == SCT_Simple &&
		(IsA(command->parsetree, CreateStmt) ||
		 IsA(command->parsetree, CreateForeignTableStmt)))
		return list_make1_oid(command->d.simple.address.objectId);
	if (command->type != SCT_AlterTable)
		return NIL;
	foreach(lc, command->d.alterTable.subcmds)
	{
		const CollectedATSubcmd *sub = lfirst(lc);

		if (castNode(AlterTableCmd, sub->parsetree)->subtype == AT_AttachPartition)
			joined = list_concat(joined, OidIsValid(sub->address.objectId) ?
								 list_make1_oid(sub->address.objectId) :
								 new_children(command->d.alterTable.objectId));
		else if (castNode(AlterTableCmd, sub->parsetree)->subtype == AT_AddInherit)
			joined = lappend_oid(joined, command->d.alterTable.objectId);
	}
	return joined;
}

Datum
le_leader_election_cover(PG_FUNCTION_ARGS)
{
	MemoryContext context = CurrentMemoryContext;
	List	   *joined = NIL;
	Oid			function;
	ListCell   *lc;

	if (!CALLED_AS_EVENT_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_EVENT_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("leader_election_cover() must be called by an event trigger")));
	function = le_fence_function(fcinfo);

	SPI_connect();
	if (SPI_execute("SELECT command FROM pg_catalog.pg_event_trigger_ddl_commands()",
					true, 0) != SPI_OK_SELECT)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not list what was done to tables")));
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool		isnull;
		Datum		command = SPI_getbinval(SPI_tuptable->vals[i],
											SPI_tuptable->tupdesc, 1, &isnull);
		MemoryContext old = MemoryContextSwitchTo(context);

		if (!isnull)
			joined = list_concat(joined,
								 joined_tables((CollectedCommand *) DatumGetPointer(command)));
		MemoryContextSwitchTo(old);
	}
	SPI_finish();
	foreach(lc, joined)
		cover_tree(lfirst_oid(lc), function);
	PG_RETURN_NULL();
}
