/*-------------------------------------------------------------------------
 *
 * asked.c
 *	  Which election a query asks a view for.
 *
 * The views are made of functions that return a row for each election, and
 * PostgreSQL lets a function return all before it drops what a query does not
 * want.  Most queries want one election, by its name.  So the function looks
 * into the plan that it is called from: where the node that calls it keeps only
 * rows whose first column equals a value that is known already, others need
 * not be made.
 *
 * A view of the table itself would do without this.  But it would see the
 * elections as of the transaction's snapshot, and leave predicate locks.
 *
 * Whatever is not exactly as expected means that nothing is known.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/execnodes.h"
#include "nodes/plannodes.h"
#include "nodes/primnodes.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

#include "asked.h"

static const FunctionScan *find_in_list(const List *plans, Oid function);

/* Does the node call that function, and nothing else? */
static bool
calls(const FunctionScan *scan, Oid function)
{
	const RangeTblFunction *called;

	if (list_length(scan->functions) != 1 || scan->funcordinality)
		return false;
	called = linitial_node(RangeTblFunction, scan->functions);
	return IsA(called->funcexpr, FuncExpr) &&
		((const FuncExpr *) called->funcexpr)->funcid == function;
}

/* The first node found that calls a function, in all that is searched */
static const FunctionScan *
find(const Plan *plan, Oid function)
{
	const FunctionScan *found;

	if (plan == NULL)
		return NULL;
	switch (nodeTag(plan))
	{
		case T_FunctionScan:
			if (calls((const FunctionScan *) plan, function))
				return (const FunctionScan *) plan;
			break;
		case T_SubqueryScan:
			return find(((const SubqueryScan *) plan)->subplan, function);
		case T_Append:
			return find_in_list(((const Append *) plan)->appendplans, function);
		default:
			break;
	}
	found = find(plan->lefttree, function);
	return found ? found : find(plan->righttree, function);
}

static const FunctionScan *
find_in_list(const List *plans, Oid function)
{
	const FunctionScan *found = NULL;
	ListCell   *lc;

	foreach(lc, plans)
	{
		found = find(lfirst(lc), function);
		if (found)
			break;
	}
	return found;
}

/*
 * The node that calls us.  It must be the only one in the whole statement that
 * calls a function, as nothing tells two of them apart.
 */
static const FunctionScan *
calling_node(FunctionCallInfo fcinfo)
{
	ReturnSetInfo *info = (ReturnSetInfo *) fcinfo->resultinfo;
	const FunctionScan *found;
	const PlannedStmt *statement;
	int			functions = 0;
	ListCell   *lc;

	/* Only a call in FROM prefers all rows at once. */
	if (info == NULL || !IsA(info, ReturnSetInfo) ||
		(info->allowedModes & SFRM_Materialize_Preferred) == 0 ||
		info->econtext->ecxt_estate == NULL)
		return NULL;
	statement = info->econtext->ecxt_estate->es_plannedstmt;
	if (statement == NULL)
		return NULL;
	foreach(lc, statement->rtable)
	{
		if (lfirst_node(RangeTblEntry, lc)->rtekind == RTE_FUNCTION)
			functions++;
	}
	if (functions != 1)
		return NULL;
	found = find(statement->planTree, fcinfo->flinfo->fn_oid);
	return found ? found :
		find_in_list(statement->subplans, fcinfo->flinfo->fn_oid);
}

/* The value of a constant, or of a parameter that came with the statement */
static char *
known_text(const Node *node, const ExprContext *econtext)
{
	if (IsA(node, Const))
	{
		const Const *value = (const Const *) node;

		if (value->consttype == TEXTOID && !value->constisnull)
			return TextDatumGetCString(value->constvalue);
	}
	else if (IsA(node, Param))
	{
		const Param *param = (const Param *) node;
		ParamListInfo params = econtext->ecxt_param_list_info;
		ParamExternData room;
		ParamExternData *value;

		if (param->paramkind != PARAM_EXTERN || params == NULL ||
			param->paramid > params->numParams)
			return NULL;
		value = params->paramFetch ?
			params->paramFetch(params, param->paramid, false, &room) :
			&params->params[param->paramid - 1];
		if (value->ptype == TEXTOID && !value->isnull)
			return TextDatumGetCString(value->value);
	}
	return NULL;
}

/* With which known value a condition requires the first column to be equal */
static char *
required_text(const Node *condition, const ExprContext *econtext)
{
	const OpExpr *compare = (const OpExpr *) condition;
	const Node *left;
	const Node *right;

	if (!IsA(condition, OpExpr) || get_opcode(compare->opno) != F_TEXTEQ ||
		!get_collation_isdeterministic(compare->inputcollid))
		return NULL;
	left = linitial(compare->args);
	right = lsecond(compare->args);
	if (!IsA(left, Var))
	{
		left = right;
		right = linitial(compare->args);
	}
	if (!IsA(left, Var) || ((const Var *) left)->varattno != 1)
		return NULL;
	return known_text(right, econtext);
}

char *
le_asked_election(FunctionCallInfo fcinfo)
{
	const FunctionScan *scan = calling_node(fcinfo);
	ExprContext *econtext;
	char	   *asked = NULL;
	ListCell   *lc;

	if (scan == NULL)
		return NULL;
	econtext = ((ReturnSetInfo *) fcinfo->resultinfo)->econtext;
	foreach(lc, scan->scan.plan.qual)
	{
		asked = required_text(lfirst(lc), econtext);
		if (asked)
			break;
	}
	return asked;
}
