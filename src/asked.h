/*-------------------------------------------------------------------------
 *
 * asked.h
 *	  Which election a query asks a view for.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_ASKED_H
#define LE_ASKED_H

#include "fmgr.h"

/*
 * The only election whose row the query that calls this function in FROM will
 * use, by the function's first column; NULL if it is not known, then it may be
 * any.  The query still compares by itself.
 */
extern char *le_asked_election(FunctionCallInfo fcinfo);

#endif							/* LE_ASKED_H */
