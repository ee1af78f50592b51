/*-------------------------------------------------------------------------
 *
 * configure.c
 *	  leader_configure(): what holds for every term of an election.
 *
 * The owner stands in the row of the election, the rest in a row of its own.
 * Both are changed under ShareUpdateExclusiveLock, which keeps bids away and
 * lets the leader work on; only to become external takes more.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "arguments.h"
#include "change.h"
#include "clock.h"
#include "config.h"
#include "election.h"
#include "lock.h"
#include "relations.h"
#include "rights.h"
#include "shmem.h"

PG_FUNCTION_INFO_V1(le_leader_configure);

/* Arguments of the SQL function */
enum
{
	ARG_ELECTION,
	ARG_TTL,
	ARG_LOCK_DELAY,
	ARG_FAILOVER_LIMIT,
	ARG_FAILOVER_WINDOW,
	ARG_PAUSED,
	ARG_OWNER,
	ARG_EXTERNAL
};

/* What is to be set; negative or NULL: left as it is */
typedef struct Wish
{
	int64		ttl;
	int64		lock_delay;
	int			failover_limit;
	int64		failover_window;
	int			paused;
	const char *owner;
	int			external;
} Wish;

static int
bool_argument(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ? -1 : PG_GETARG_BOOL(n);
}

static void
read_wish(FunctionCallInfo fcinfo, Wish *wish)
{
	wish->ttl = le_arg_interval(fcinfo, ARG_TTL, LE_TTL_MIN, LE_TTL_MAX, -1,
								"ttl");
	wish->lock_delay = le_arg_interval(fcinfo, ARG_LOCK_DELAY, 0,
									   LE_LOCK_DELAY_MAX, -1, "lock_delay");
	wish->failover_limit = PG_ARGISNULL(ARG_FAILOVER_LIMIT) ? -1 :
		PG_GETARG_INT32(ARG_FAILOVER_LIMIT);
	if (!PG_ARGISNULL(ARG_FAILOVER_LIMIT) &&
		(wish->failover_limit < 0 || wish->failover_limit > LE_FAILOVER_LIMIT_MAX))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("failover_limit is out of range"),
				 errdetail("It must be from 0 to %d.", LE_FAILOVER_LIMIT_MAX)));
	wish->failover_window = le_arg_interval(fcinfo, ARG_FAILOVER_WINDOW,
											LE_FAILOVER_WINDOW_MIN,
											LE_FAILOVER_WINDOW_MAX, -1,
											"failover_window");
	wish->paused = bool_argument(fcinfo, ARG_PAUSED);
	wish->owner = PG_ARGISNULL(ARG_OWNER) ? NULL :
		NameStr(*PG_GETARG_NAME(ARG_OWNER));
	wish->external = bool_argument(fcinfo, ARG_EXTERNAL);
}

/* To give an election away, one must belong to both sides. */
static void
check_new_owner(const char *owner)
{
	Oid			role = get_role_oid(owner, false);

	if (!has_privs_of_role(GetUserId(), role))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to give an election to role \"%s\"",
						owner),
				 errdetail("The current user is not a member of that role.")));
}

static void
refuse_held(const char *election)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("election \"%s\" is held", election),
			 errdetail("Only a free election can become external.")));
}

/* The row becomes that of an external election; the caller stores it. */
static void
become_external(const LeRelations *relations, const LeView *view,
				LeElection *row)
{
	LeKey		key = {relations->state, row->election, row->epoch};

	if (le_view_is_held(view))
		refuse_held(row->election);
	if (!le_election_lock_free(relations->state, row->election, &view->row))
		le_election_cannot_lock(row->election);
	if (row->held)
	{
		le_change_note(LE_CHANGE_ENDED, &key,
					   le_clock_now() + LE_CHANGE_LIMIT);
		le_election_end(relations, view, GetCurrentTimestamp(), NULL);
	}
	/* An epoch of its own that has ended is nobody's token, and stays so. */
	row->acquired_at = DT_NOBEGIN;
	row->held = false;
	row->kind = LE_KIND_EXTERNAL;
	row->ttl = 0;
}

static void
check_external(const char *election, const LeElection *row, const Wish *wish)
{
	if (row->kind == LE_KIND_EXTERNAL && wish->external == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("election \"%s\" is external", election),
				 errdetail("An external election stays external."),
				 errhint("Drop it with leader_drop(), and use the name anew.")));
}

/* Creates the row, or changes what of it is wished. */
static void
configure_row(const LeRelations *relations, Relation rel, const LeView *view,
			  const char *election, const Wish *wish)
{
	LeElection	row = view->row;
	bool		external = wish->external == 1 && row.kind != LE_KIND_EXTERNAL;

	if (row.exists && wish->owner == NULL && !external)
		return;
	if (!row.exists)
	{
		strlcpy(row.election, election, sizeof(row.election));
		strlcpy(row.owner, GetUserNameFromId(GetUserId(), false), NAMEDATALEN);
		row.acquired_at = DT_NOBEGIN;
		row.kind = LE_KIND_LEASE;
	}
	if (external)
		become_external(relations, view, &row);
	if (wish->owner)
		strlcpy(row.owner, wish->owner, NAMEDATALEN);
	le_store_write(rel, &row);
}

static void
configure_terms(const LeRelations *relations, const char *election,
				const Wish *wish)
{
	Relation	rel;
	LeConfig	config;

	if (wish->ttl < 0 && wish->lock_delay < 0 && wish->failover_limit < 0 &&
		wish->failover_window < 0 && wish->paused < 0)
		return;
	rel = le_config_open(relations->config, RowExclusiveLock);
	le_config_read(rel, election, &config);
	if (wish->ttl >= 0)
		config.ttl = wish->ttl;
	if (wish->lock_delay >= 0)
		config.lock_delay = wish->lock_delay;
	if (wish->failover_limit >= 0)
		config.failover_limit = wish->failover_limit;
	if (wish->failover_window >= 0)
		config.failover_window = wish->failover_window;
	if (wish->paused >= 0)
		config.paused = wish->paused;
	/* A person has looked at what had happened. */
	if (wish->paused == 0)
		config.ntakeovers = 0;
	le_config_write(rel, election, &config);
	table_close(rel, NoLock);
}

/* The caller holds ShareUpdateExclusiveLock. */
static void
configure(const LeRelations *relations, const char *election, const Wish *wish)
{
	Relation	rel = le_state_open(relations->state, RowExclusiveLock);
	int64		until = le_clock_now() + LE_CHANGE_LIMIT;
	LeKey		key = {relations->state, election, 0};
	LeView		view;

	le_view_read(rel, election, &view);
	le_election_require(relations, rel, election, &view.row);
	check_external(election, &view.row, wish);
	key.epoch = view.row.epoch;
	if (!view.row.exists)
		le_change_created(LE_CHANGE_OTHER, &key, until);
	le_change_configured(&key, wish->owner, wish->lock_delay, until);
	configure_row(relations, rel, &view, election, wish);
	configure_terms(relations, election, wish);
	table_close(rel, NoLock);
}

Datum
le_leader_configure(PG_FUNCTION_ARGS)
{
	LeRelations relations = *le_relations(fcinfo);
	char	   *election = le_arg_name(fcinfo, ARG_ELECTION, "election");
	LeLock		lock = le_lock_election(relations.state, election);
	Wish		wish;
	Relation	rel;
	LeElection	row;

	le_require_primary();
	le_shmem_attach();
	read_wish(fcinfo, &wish);
	/* Nobody may so much as queue for the lock of another's election. */
	rel = le_state_open(relations.state, AccessShareLock);
	le_store_read(rel, election, &row);
	le_election_require(&relations, rel, election, &row);
	table_close(rel, AccessShareLock);
	if (wish.owner)
		check_new_owner(wish.owner);
	PreventCommandIfReadOnly("leader_configure()");
	if (!le_lock_queue(&lock, ShareUpdateExclusiveLock))
		le_election_cannot_lock(election);
	configure(&relations, election, &wish);
	PG_RETURN_VOID();
}
