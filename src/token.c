/*-------------------------------------------------------------------------
 *
 * token.c
 *	  The fencing tokens that the current transaction depends on.
 *
 * A token is current while the row names its epoch and a holder; no clock is
 * asked.  Its first use in a transaction reads the row and remembers it, and
 * keeps the table of elections open in AccessShareLock.  What counts is asked
 * at pre-commit: each election's lock in RowShareLock, then the row again.
 * That lock goes with the transaction, after its changes became visible; so a
 * takeover, which needs ExclusiveLock, either sees them all or has made the
 * commit fail.
 *
 * A token that the transaction has itself ended was asked for when that took
 * ExclusiveLock, and stayed current until then.  One that this session leads
 * by, without a TTL, is current while it holds the term's lock.
 *
 * The list lives in TopTransactionContext; a token belongs to the nesting
 * level that first used it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "nodes/pg_list.h"
#include "utils/memutils.h"

#include "change.h"
#include "clock.h"
#include "guc.h"
#include "leader_election.h"
#include "lock.h"
#include "place.h"
#include "relations.h"
#include "rights.h"
#include "session.h"
#include "setting.h"
#include "store.h"
#include "token.h"

/* More elections than this are locked as one, see lock.c. */
#define MAX_SINGLE_LOCKS	64

typedef struct Token
{
	LeKey		key;
	bool		presented;		/* by leader_fence */
	bool		validated;		/* under the lock, at or after pre-commit */
	int			level;			/* GetCurrentTransactionNestLevel() */
} Token;

static List *tokens = NIL;		/* of Token, oldest first */
static bool committing = false; /* has pre-commit begun? */

/* May the current epoch be told to the one who gets the error? */
static bool
may_see(const LeElection *row)
{
	return !row->exists || le_rights_may_see(row->owner);
}

static void
stale_epoch(const LeKey *key, const LeElection *row)
{
	ereport(ERROR,
			(errcode(ERRCODE_LE_STALE_EPOCH),
			 errmsg("stale epoch for election \"%s\"", key->election),
			 !may_see(row) ?
			 errdetail("Presented epoch %lld.", (long long) key->epoch) :
			 row->held ?
			 errdetail("Presented epoch %lld, current epoch %lld.",
					   (long long) key->epoch, (long long) row->epoch) :
			 errdetail("Presented epoch %lld, no current epoch: the term that began last, epoch %lld, was ended.",
					   (long long) key->epoch, (long long) row->epoch),
			 errhint("This process is no longer the leader: it must stop acting as such, and acquire leadership anew.")));
}

static void
unissued_epoch(const LeKey *key, const LeElection *row)
{
	ereport(ERROR,
			(errcode(ERRCODE_LE_UNISSUED_EPOCH),
			 errmsg("epoch was never issued for election \"%s\"", key->election),
			 !row->exists ?
			 errdetail("Presented epoch %lld, but the election does not exist.",
					   (long long) key->epoch) :
			 may_see(row) ?
			 errdetail("Presented epoch %lld, highest epoch issued %lld.",
					   (long long) key->epoch, (long long) row->epoch) :
			 errdetail("Presented epoch %lld.", (long long) key->epoch),
			 errhint("Present the epoch that leader_acquire() returned for this election.")));
}

/* The rule of what is current, in one place. */
static void
require_current(const LeKey *key, const LeElection *row)
{
	if (!row->exists || key->epoch > row->epoch)
		unissued_epoch(key, row);
	if (key->epoch < row->epoch || !row->held)
		stale_epoch(key, row);
}

/* Reads the row and keeps the table locked to the end of the transaction. */
static void
read_row(const LeKey *key, LeElection *row)
{
	Relation	rel = le_state_open(key->rel, AccessShareLock);

	le_store_read(rel, key->election, row);
	table_close(rel, NoLock);
}

/*
 * While this session holds the lock of a term without a TTL, nobody changes
 * the row: the token is current without a look.  Asked again at pre-commit,
 * as the lock may be gone by then.
 */
static bool
leads_alone(const LeKey *key)
{
	return le_session_mine_alone(key) && !le_change_ended(key);
}

static void
poll_lock(const LeLock *lock, LOCKMODE mode, int64 until, const LeKey *key)
{
	const char *why = le_lock_poll(lock, mode, until);

	if (why != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not validate the fencing token for election \"%s\"",
						key->election),
				 errdetail("%s", why),
				 errhint("Run the transaction again if this process is still the leader.")));
}

void
le_token_missing(Oid rel, const char *election, const char *table)
{
	LeKey		key = {rel, election, 0};
	LeElection	row;

	read_row(&key, &row);
	ereport(ERROR,
			(errcode(ERRCODE_LE_NO_TOKEN),
			 errmsg("no fencing token was presented for election \"%s\"",
					election),
			 !may_see(&row) ?
			 errdetail("Table \"%s\" is protected; presented epoch none.",
					   table) :
			 row.held ?
			 errdetail("Table \"%s\" is protected; presented epoch none, current epoch %lld.",
					   table, (long long) row.epoch) :
			 errdetail("Table \"%s\" is protected; presented epoch none, no current epoch.",
					   table),
			 errhint("Call leader_fence() in the transaction, or set leader_election.fence.")));
}

static int64
validation_deadline(void)
{
	return le_clock_now() + le_commit_timeout_ms * LE_MS;
}

/* Lock first, read after. */
static void
validate(const LeKey *key, bool lock_it, int64 until)
{
	LeElection	row;

	if (le_change_ended(key) || leads_alone(key))
		return;
	if (lock_it)
	{
		LeLock		lock = le_lock_election(key->rel, key->election);

		poll_lock(&lock, RowShareLock, until, key);
	}
	read_row(key, &row);
	require_current(key, &row);
}

/* Is the token remembered, and if so asked, as one that was presented? */
static bool
is_remembered(const LeKey *key, bool presented)
{
	ListCell   *lc;

	foreach(lc, tokens)
	{
		Token	   *token = lfirst(lc);

		if ((token->presented || !presented) &&
			le_key_equal(&token->key, key))
			return true;
	}
	return false;
}

/*
 * What is used after pre-commit has begun, by another extension's callback,
 * is validated on the spot.
 */
static void
remember(const LeKey *key, bool presented)
{
	MemoryContext old;
	Token	   *token;

	if (committing)
		validate(key, true, validation_deadline());
	if (tokens == NIL)
		le_callbacks_first();
	old = MemoryContextSwitchTo(TopTransactionContext);
	token = palloc(sizeof(Token));
	token->key = *key;
	token->key.election = pstrdup(key->election);
	token->presented = presented;
	token->validated = committing;
	token->level = GetCurrentTransactionNestLevel();
	tokens = lappend(tokens, token);
	MemoryContextSwitchTo(old);
	le_generation++;
}

void
le_token_use(const LeKey *key)
{
	LeElection	row;

	if (is_remembered(key, false) && !le_change_ended(key))
		return;

	le_require_primary();
	if (!leads_alone(key))
	{
		read_row(key, &row);
		require_current(key, &row);
	}
	remember(key, false);
}

void
le_token_present(const LeKey *key)
{
	LeElection	row;
	LePlaceInfo place;

	le_require_primary();
	if (leads_alone(key))
		le_place_look(key, &place);
	else
		place.found = false;
	if (place.found)
		le_rights_require(place.owner, key->election);
	else
	{
		read_row(key, &row);
		if (row.exists)
			le_rights_require(row.owner, key->election);
		require_current(key, &row);
	}
	if (!is_remembered(key, true))
		remember(key, true);
}

int64
le_token_presented(Oid rel, const char *election)
{
	int64		epoch = 0;
	ListCell   *lc;

	foreach(lc, tokens)
	{
		Token	   *token = lfirst(lc);

		if (token->presented && token->key.rel == rel &&
			strcmp(token->key.election, election) == 0)
			epoch = token->key.epoch;
	}
	if (epoch == 0)
		epoch = le_setting_epoch(election);
	return epoch != 0 ? epoch : le_session_epoch(rel, election);
}

bool
le_token_any(void)
{
	return tokens != NIL;
}

/* Every transaction locks in the same order. */
static int
compare_tokens(const ListCell *a, const ListCell *b)
{
	const LeKey *ka = &((Token *) lfirst(a))->key;
	const LeKey *kb = &((Token *) lfirst(b))->key;
	uint64		oa = le_lock_election(ka->rel, ka->election).order;
	uint64		ob = le_lock_election(kb->rel, kb->election).order;

	return oa < ob ? -1 : oa > ob ? 1 : 0;
}

static bool
all_validated(void)
{
	ListCell   *lc;

	foreach(lc, tokens)
	{
		if (!((Token *) lfirst(lc))->validated)
			return false;
	}
	return true;
}

void
le_token_pre_commit(void)
{
	int64		until;
	bool		one_lock;
	ListCell   *lc;

	committing = true;
	if (all_validated())
		return;
	until = validation_deadline();
	one_lock = list_length(tokens) > MAX_SINGLE_LOCKS;
	if (one_lock)
	{
		const LeKey *key = &((Token *) linitial(tokens))->key;
		LeLock		lock = le_lock_database(key->rel);

		if (le_lock_poll(&lock, ShareLock, until) != NULL)
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("could not validate the fencing tokens of this transaction"),
					 errdetail("It depends on more than %d elections, and another transaction is changing some election of this database.",
							   MAX_SINGLE_LOCKS),
					 errhint("Run the transaction again if this process is still the leader.")));
	}
	else
		list_sort(tokens, compare_tokens);
	foreach(lc, tokens)
	{
		Token	   *token = lfirst(lc);

		if (!token->validated)
			validate(&token->key, !one_lock, until);
		token->validated = true;
	}
}

bool
le_token_committing(void)
{
	return committing;
}

void
le_token_forget(void)
{
	if (tokens != NIL)
		le_generation++;
	tokens = NIL;
	committing = false;
}

void
le_token_subxact_commit(void)
{
	int			level = GetCurrentTransactionNestLevel();
	ListCell   *lc;

	foreach(lc, tokens)
	{
		Token	   *token = lfirst(lc);

		token->level = Min(token->level, level - 1);
	}
}

void
le_token_subxact_abort(void)
{
	int			level = GetCurrentTransactionNestLevel();
	ListCell   *lc;

	foreach(lc, tokens)
	{
		Token	   *token = lfirst(lc);

		if (token->level >= level)
			tokens = foreach_delete_current(tokens, lc);
	}
	le_generation++;
}
