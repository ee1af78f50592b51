/*-------------------------------------------------------------------------
 *
 * leader_election.c
 *	  Loads the library, and takes part in transactions.
 *
 * Order at pre-commit: the tokens are validated first, which may fail; then
 * ended terms begin to close.  Both may be called several times for one event,
 * and see to it by themselves that nothing is left at the end of a transaction,
 * whichever it is.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "tcop/pquery.h"
#include "tcop/utility.h"
#include "utils/resowner.h"

#include "change.h"
#include "compat.h"
#include "guc.h"
#include "leader_election.h"
#include "relations.h"
#include "shmem.h"
#include "token.h"

LE_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

uint64		le_generation = 1;

static ExecutorEnd_hook_type prev_executor_end = NULL;
static ProcessUtility_hook_type prev_utility = NULL;

/* COMMIT PREPARED would run none of our code. */
static void
refuse_prepare(void)
{
	if (le_token_any() || le_change_any())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot PREPARE a transaction that presented a fencing token or changed an election")));
}

static void
on_xact(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			le_token_pre_commit();
			le_change_pre_commit();
			break;
		case XACT_EVENT_PRE_PREPARE:
			refuse_prepare();
			break;
		case XACT_EVENT_COMMIT:
			le_change_commit();
			le_token_commit();
			break;
		case XACT_EVENT_ABORT:
			le_change_abort();
			le_token_forget();
			break;
		default:
			/* Nothing of ours happens in parallel workers. */
			break;
	}
}

static void
on_subxact(SubXactEvent event, SubTransactionId subid,
		   SubTransactionId parent, void *arg)
{
	switch (event)
	{
		case SUBXACT_EVENT_COMMIT_SUB:
			le_change_subxact_commit();
			le_token_subxact_commit();
			break;
		case SUBXACT_EVENT_ABORT_SUB:
			le_change_subxact_abort();
			le_token_subxact_abort();
			break;
		default:
			break;
	}
}

/*
 * An extension that commits elsewhere, as postgres_fdw does, acts in a callback
 * of its own at pre-commit, and registers it when a transaction first needs
 * it.  The one registered last is called first, so beside the registration of
 * the library's load, which stays, there is one at the front, which is made
 * anew with the first token and after every statement that follows.
 *
 * The server may be walking the list just now, if another extension's callback
 * runs SQL.  Then no registration may be given up.  A statement of a portal
 * has a resource owner of its own, or stands in a subtransaction, as in a block
 * with an exception handler; SQL in a callback has neither.  Without that, a
 * further registration is made, a few at most.
 */
static int	front_registrations = 0;
static int	front_mark;			/* tells them from the first one */

#define MAX_FRONT_REGISTRATIONS	8

void
le_callbacks_first(void)
{
	if (le_token_committing())
		return;
	if (CurrentResourceOwner != CurTransactionResourceOwner ||
		(ActivePortal != NULL && GetCurrentTransactionNestLevel() > 1))
	{
		for (; front_registrations > 0; front_registrations--)
			UnregisterXactCallback(on_xact, &front_mark);
	}
	if (front_registrations == MAX_FRONT_REGISTRATIONS)
		return;
	RegisterXactCallback(on_xact, &front_mark);
	front_registrations++;
}

static void
after_statement(void)
{
	if (le_token_any())
		le_callbacks_first();
}

static void
on_executor_end(QueryDesc *query)
{
	if (prev_executor_end)
		prev_executor_end(query);
	else
		standard_ExecutorEnd(query);
	after_statement();
}

static void
on_utility(PlannedStmt *pstmt, const char *source, bool read_only_tree,
		   ProcessUtilityContext context, ParamListInfo params,
		   QueryEnvironment *environment, DestReceiver *dest,
		   QueryCompletion *completion)
{
	if (prev_utility)
		prev_utility(pstmt, source, read_only_tree, context, params,
					 environment, dest, completion);
	else
		standard_ProcessUtility(pstmt, source, read_only_tree, context, params,
								environment, dest, completion);
	after_statement();
}

void
_PG_init(void)
{
	le_guc_init();
	le_relations_init();
	le_shmem_init();
	le_change_init();
	RegisterXactCallback(on_xact, NULL);
	RegisterSubXactCallback(on_subxact, NULL);
	prev_executor_end = ExecutorEnd_hook;
	ExecutorEnd_hook = on_executor_end;
	prev_utility = ProcessUtility_hook;
	ProcessUtility_hook = on_utility;
}
