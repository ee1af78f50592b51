/*-------------------------------------------------------------------------
 *
 * protect.h
 *	  Tables and their fences.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_PROTECT_H
#define LE_PROTECT_H

#include "fmgr.h"
#include "nodes/pg_list.h"
#include "utils/relcache.h"

/* The fence for everything but TRUNCATE where it is by row, and the other one */
#define LE_FENCE_NAME			"~~leader_fence"
#define LE_FENCE_NAME_TRUNCATE	"~~leader_fence_truncate"

/* How a table is protected */
typedef struct LeProtection
{
	char	   *election;		/* perhaps with columns, see template.c */
	char	   *column;			/* of the epoch, or NULL */
	bool		by_row;
	bool		replica;		/* also when changes are applied as a replica */
} LeProtection;

/*
 * leader_fence_check() of the installation whose function was called.  Error
 * 55000 if it has gone.
 */
extern Oid	le_fence_function(FunctionCallInfo fcinfo);

/* How a table is protected, in the current context; false if it is not. */
extern bool le_protection_read(Relation rel, Oid function,
							   LeProtection *protection);

/*
 * Makes those triggers that a table lacks, as the current user, and locks it
 * in ShareRowExclusiveLock.  Error 55000 if it has others, and several if it
 * cannot be protected so.
 */
extern void le_protection_install(Oid relid, const LeProtection *protection,
								  Oid function);

/* The tables of which that one is a partition or a child. */
extern List *le_protection_parents(Oid relid);

#endif							/* LE_PROTECT_H */
