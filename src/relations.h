/*-------------------------------------------------------------------------
 *
 * relations.h
 *	  The extension's own tables and sequences.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_RELATIONS_H
#define LE_RELATIONS_H

#include "fmgr.h"
#include "storage/lockdefs.h"
#include "utils/relcache.h"

typedef struct LeRelations
{
	Oid			state;			/* one row for each election */
	Oid			metadata;		/* at most one row for each election */
	Oid			history;		/* one row for each term that has ended */
	Oid			epoch;			/* sequence: the last epoch drawn */
	Oid			identity;		/* sequence: the server that drew it */
	Oid			drawn_at;		/* sequence: when that was, if it matters */
	Oid			owner;			/* the role that owns them */
} LeRelations;

/* Columns of the table of elections, leader_election_state */
enum
{
	LE_STATE_ELECTION = 1,
	LE_STATE_EPOCH,
	LE_STATE_TERMS,
	LE_STATE_ACQUIRED_AT,
	LE_STATE_TTL,
	LE_STATE_KIND,
	LE_STATE_OWNER,
	LE_STATE_HOLDER,
	LE_STATE_NATTS = LE_STATE_HOLDER
};

/* Columns of leader_election_metadata */
enum
{
	LE_METADATA_ELECTION = 1,
	LE_METADATA_EPOCH,
	LE_METADATA_VALUE,
	LE_METADATA_NATTS = LE_METADATA_VALUE
};

/* Columns of leader_election_history */
enum
{
	LE_HISTORY_ELECTION = 1,
	LE_HISTORY_EPOCH,
	LE_HISTORY_LEADER,
	LE_HISTORY_ACQUIRED_AT,
	LE_HISTORY_ENDED_AT,
	LE_HISTORY_END_REASON,
	LE_HISTORY_NATTS = LE_HISTORY_END_REASON
};

extern void le_relations_init(void);

/*
 * The relations that belong to the installation whose function this is the
 * call of.  They are looked up in that function's schema, never through the
 * search_path.  Valid until the next invalidation message is taken in: copy
 * what is needed longer.  Error 55000 if one is missing, 25000 in a parallel
 * operation.
 */
extern const LeRelations *le_relations(FunctionCallInfo fcinfo);

/*
 * Opens one of the tables with that lock.  Error 55000 if its columns are
 * not the ones that the extension made.
 */
extern Relation le_state_open(Oid state, LOCKMODE lockmode);
extern Relation le_metadata_open(Oid metadata, LOCKMODE lockmode);
extern Relation le_history_open(Oid history, LOCKMODE lockmode);

#endif							/* LE_RELATIONS_H */
