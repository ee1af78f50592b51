/*-------------------------------------------------------------------------
 *
 * protect.c
 *	  leader_protect() and leader_unprotect(): install and remove fences.
 *
 * A fence is one or two triggers with leader_fence_check(): a statement
 * trigger for everything, or, where rows carry an epoch, a row trigger and a
 * statement trigger for TRUNCATE.  Their names sort behind what people write.
 *
 * The triggers are made by SQL commands, as the caller: it needs the rights of
 * the table's owner, and gets dependencies, event triggers and dump for free.
 * Every name in those commands is qualified.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "catalog/catalog.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "arguments.h"
#include "compat.h"
#include "fence.h"
#include "relations.h"
#include "rights.h"
#include "store.h"

#define FENCE_FUNCTION		"leader_fence_check"
#define FENCE_NAME			"~~leader_fence"
#define FENCE_NAME_TRUNCATE	"~~leader_fence_truncate"

PG_FUNCTION_INFO_V1(le_leader_protect);
PG_FUNCTION_INFO_V1(le_leader_unprotect);

typedef struct Protection
{
	char	   *table;			/* quoted and qualified */
	char	   *function;		/* likewise */
	char	   *arguments;		/* of the trigger, quoted */
	bool		by_row;
	bool		replica;
} Protection;

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
	if (rel->rd_rel->relkind != RELKIND_RELATION)
		wrong_relation(rel, "Only ordinary tables can be protected.");
	if (rel->rd_rel->relispartition || has_superclass(RelationGetRelid(rel)) ||
		find_inheritance_children(RelationGetRelid(rel), NoLock) != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot protect table \"%s\"",
						RelationGetRelationName(rel)),
				 errdetail("It has parents or children by inheritance or partitioning, through which it could be written.")));
}

/* Does the trigger call leader_fence_check() of this installation? */
static bool
is_fence(const Trigger *trigger, Oid function)
{
	return trigger->tgfoid == function;
}

static int
count_fences(Relation rel, Oid function)
{
	int			count = 0;

	for (int i = 0; rel->trigdesc && i < rel->trigdesc->numtriggers; i++)
		count += is_fence(&rel->trigdesc->triggers[i], function);
	return count;
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

static char *
qualified_table(Relation rel)
{
	return quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
									  RelationGetRelationName(rel));
}

/*
 * leader_fence_check() stands in the schema of the function called.  The lock
 * on the table may have been waited for, and the extension be gone since.
 * Also sets its quoted and qualified name, unless NULL.
 */
static Oid
fence_function(FunctionCallInfo fcinfo, char **qualified)
{
	Oid			namespace = get_func_namespace(fcinfo->flinfo->fn_oid);
	char	   *schema = OidIsValid(namespace) ? get_namespace_name(namespace) :
		NULL;
	Oid			function = InvalidOid;

	if (schema)
		function = LookupFuncName(list_make2(makeString(schema),
											 makeString(FENCE_FUNCTION)),
								  0, NULL, true);
	if (!OidIsValid(function))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"leader_election\" was dropped meanwhile")));
	if (qualified)
		*qualified = quote_qualified_identifier(schema, FENCE_FUNCTION);
	return function;
}

static void
run(const char *command)
{
	int			result = SPI_execute(command, false, 0);

	if (result < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not execute \"%s\": %s", command,
						SPI_result_code_string(result))));
}

static void
create_trigger(const Protection *p, const char *name, const char *events,
			   const char *level)
{
	run(psprintf("CREATE TRIGGER %s BEFORE %s ON %s FOR EACH %s EXECUTE FUNCTION %s(%s)",
				 quote_identifier(name), events, p->table, level, p->function,
				 p->arguments));
	if (p->replica)
		run(psprintf("ALTER TABLE %s ENABLE ALWAYS TRIGGER %s", p->table,
					 quote_identifier(name)));
}

static void
install(const Protection *p)
{
	SPI_connect();
	if (p->by_row)
	{
		create_trigger(p, FENCE_NAME, "INSERT OR UPDATE OR DELETE", "ROW");
		create_trigger(p, FENCE_NAME_TRUNCATE, "TRUNCATE", "STATEMENT");
	}
	else
		create_trigger(p, FENCE_NAME,
					   "INSERT OR UPDATE OR DELETE OR TRUNCATE", "STATEMENT");
	SPI_finish();
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
 * The caller's own table, locked as CREATE TRIGGER will lock it.  Whose it is
 * is asked before, as nobody may so much as queue for a lock on another's, and
 * again after.
 */
static Relation
open_table(FunctionCallInfo fcinfo)
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
	rel = try_relation_open(relid, ShareRowExclusiveLock);
	require_owner(relid);
	return rel;
}

Datum
le_leader_protect(PG_FUNCTION_ARGS)
{
	Relation	rel = open_table(fcinfo);
	char	   *election = le_arg_name(fcinfo, 1, "election");
	char	   *column = PG_ARGISNULL(2) ? NULL : NameStr(*PG_GETARG_NAME(2));
	Protection	p;
	Oid			function = fence_function(fcinfo, &p.function);

	check_relation(rel);
	le_check_trigger_election(election);
	check_election(le_relations(fcinfo)->state, election);
	if (count_fences(rel, function) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("table \"%s\" is already protected",
						RelationGetRelationName(rel)),
				 errhint("Call leader_unprotect() first.")));
	p.by_row = column != NULL;
	p.replica = !PG_ARGISNULL(3) && PG_GETARG_BOOL(3);
	if (p.by_row)
		(void) le_fence_epoch_column(rel, column);
	else if (p.replica)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("protection of replicated changes needs an epoch column"),
				 errdetail("Changes are applied by row, and present no token of their own.")));

	p.table = qualified_table(rel);
	p.arguments = quote_literal_cstr(election);
	if (p.by_row)
		p.arguments = psprintf("%s, %s", p.arguments,
							   quote_literal_cstr(column));
	if (p.by_row && !le_fence_runs_last(rel->trigdesc, FENCE_NAME))
		le_fence_not_last(rel);

	/* ALTER TABLE wants it closed; the lock stays. */
	table_close(rel, NoLock);
	install(&p);
	PG_RETURN_VOID();
}

Datum
le_leader_unprotect(PG_FUNCTION_ARGS)
{
	Relation	rel = open_table(fcinfo);
	Oid			function = fence_function(fcinfo, NULL);
	int			count = count_fences(rel, function);
	char	   *table = qualified_table(rel);
	char	  **names = palloc(Max(count, 1) * sizeof(char *));
	int			n = 0;

	if (count == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("table \"%s\" is not protected",
						RelationGetRelationName(rel))));
	for (int i = 0; i < rel->trigdesc->numtriggers; i++)
	{
		if (is_fence(&rel->trigdesc->triggers[i], function))
			names[n++] = pstrdup(rel->trigdesc->triggers[i].tgname);
	}
	table_close(rel, NoLock);
	SPI_connect();
	while (n > 0)
		run(psprintf("DROP TRIGGER %s ON %s", quote_identifier(names[--n]),
					 table));
	SPI_finish();
	PG_RETURN_VOID();
}
