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
	Oid			config;			/* at most one row for each election */
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
	LE_STATE_OWNER,
	LE_STATE_KIND,
	LE_STATE_TTL,
	LE_STATE_TERMS,
	LE_STATE_EPOCH,
	LE_STATE_ACQUIRED_AT,
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

/* Columns of leader_election_config */
enum
{
	LE_CONFIG_ELECTION = 1,
	LE_CONFIG_PAUSED,
	LE_CONFIG_TTL,
	LE_CONFIG_LOCK_DELAY,
	LE_CONFIG_FAILOVER_LIMIT,
	LE_CONFIG_FAILOVER_WINDOW,
	LE_CONFIG_TAKEOVERS,
	LE_CONFIG_NATTS = LE_CONFIG_TAKEOVERS
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

/* Is that one of the extension's own tables? */
extern bool le_relations_include(const LeRelations *relations, Oid relid);

/*
 * The table of configurations that belongs to that table of elections, which
 * the function that is running has looked up.
 */
extern Oid	le_relations_config(Oid state);

/*
 * Opens one of the tables with that lock.  Error 55000 if its columns are
 * not the ones that the extension made.
 */
extern Relation le_state_open(Oid state, LOCKMODE lockmode);
extern Relation le_metadata_open(Oid metadata, LOCKMODE lockmode);
extern Relation le_config_open(Oid config, LOCKMODE lockmode);
extern Relation le_history_open(Oid history, LOCKMODE lockmode);

#endif							/* LE_RELATIONS_H */
