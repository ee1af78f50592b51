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
 * An election whose tokens come from elsewhere has no holder: the highest
 * token that was committed is current, and a higher one raises the mark at
 * commit, see external.c.
 *
 * List and table live in TopTransactionContext; a token belongs to the nesting
 * level that first used it, so those that go with it are the newest.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "common/hashfn.h"
#include "nodes/pg_list.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "change.h"
#include "clock.h"
#include "external.h"
#include "guc.h"
#include "leader_election.h"
#include "lock.h"
#include "place.h"
#include "relations.h"
#include "rights.h"
#include "session.h"
#include "setting.h"
#include "shmem.h"
#include "store.h"
#include "token.h"

/* More elections than this are locked as one, see lock.c. */
#define MAX_SINGLE_LOCKS	64
/* More tokens than this are found by a table; few are found faster without. */
#define MAX_UNINDEXED		8

typedef struct Token
{
	LeKey		key;
	LeLock		lock;			/* of the election */
	ItemPointerData tid;		/* of its row when it was read, or invalid */
	bool		presented;		/* by leader_fence */
	bool		raises;			/* the mark of an external election */
	bool		validated;		/* under the lock, at or after pre-commit */
	int			level;			/* GetCurrentTransactionNestLevel() */
	int			stats;			/* slot in which its commit is counted */
	struct Token *older;		/* of the same election */
} Token;

/* The tokens of one election; key.epoch is 0 */
typedef struct ElectionTokens
{
	LeKey		key;
	Token	   *newest;
} ElectionTokens;

static List *tokens = NIL;		/* of Token, oldest first */
static HTAB *by_election = NULL;	/* of ElectionTokens, if there are many */
static bool committing = false; /* has pre-commit begun? */

static uint32
hash_key(const void *key, Size size)
{
	const LeKey *k = key;

	return hash_combine(hash_bytes((const unsigned char *) k->election,
								   strlen(k->election)), k->rel);
}

static int
match_keys(const void *a, const void *b, Size size)
{
	return le_key_equal(a, b) ? 0 : 1;
}

/* Puts a token into the table, before the older ones of its election. */
static void
index_token(Token *token)
{
	LeKey		key = {token->key.rel, token->key.election, 0};
	ElectionTokens *entry = hash_search(by_election, &key, HASH_ENTER, NULL);

	entry->newest = token;
}

static void
create_table(void)
{
	HASHCTL		ctl = {0};
	ListCell   *lc;

	ctl.keysize = sizeof(LeKey);
	ctl.entrysize = sizeof(ElectionTokens);
	ctl.hash = hash_key;
	ctl.match = match_keys;
	ctl.hcxt = TopTransactionContext;
	by_election = hash_create("fencing tokens", 64, &ctl,
							  HASH_ELEM | HASH_FUNCTION | HASH_COMPARE |
							  HASH_CONTEXT);
	foreach(lc, tokens)
		index_token(lfirst(lc));
}

/* The newest token of an election, from which the older ones hang; or NULL */
static Token *
newest_token(Oid rel, const char *election)
{
	LeKey		key = {rel, election, 0};
	ElectionTokens *entry;

	if (by_election != NULL)
	{
		entry = hash_search(by_election, &key, HASH_FIND, NULL);
		return entry ? entry->newest : NULL;
	}
	for (int i = list_length(tokens) - 1; i >= 0; i--)
	{
		Token	   *token = list_nth(tokens, i);

		if (token->key.rel == rel &&
			strcmp(token->key.election, election) == 0)
			return token;
	}
	return NULL;
}

/* May the current epoch be told to the one who gets the error? */
static bool
may_see(const LeElection *row)
{
	return !row->exists || le_rights_may_see(row->owner);
}

/* A rejection is counted although it is an error. */
static void
count_rejection(const LeKey *key, const LeElection *row, LeCounter counter)
{
	le_shmem_attach();
	if (row->exists)
		le_stats_count_for(key->rel, key->election, counter);
}

static void
stale_epoch(const LeKey *key, const LeElection *row)
{
	count_rejection(key, row, LE_COUNT_STALE);
	ereport(ERROR,
			(errcode(ERRCODE_LE_STALE_EPOCH),
			 errmsg("stale epoch for election \"%s\"", key->election),
			 !may_see(row) ?
			 errdetail("Presented epoch %lld.", (long long) key->epoch) :
			 le_election_is_led(row) ?
			 errdetail("Presented epoch %lld, current epoch %lld.",
					   (long long) key->epoch, (long long) row->epoch) :
			 errdetail("Presented epoch %lld, no current epoch: the term that began last, epoch %lld, was ended.",
					   (long long) key->epoch, (long long) row->epoch),
			 errhint("This process is no longer the leader: it must stop acting as such, and acquire leadership anew.")));
}

static void
unissued_epoch(const LeKey *key, const LeElection *row)
{
	count_rejection(key, row, LE_COUNT_UNISSUED);
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
			 row->kind == LE_KIND_EXTERNAL ?
			 errhint("Tokens of an external election are positive, and come from elsewhere.") :
			 errhint("Present the epoch that leader_acquire() returned for this election.")));
}

/* The rule of what is current, in one place. */
static void
require_current(const LeKey *key, const LeElection *row)
{
	if (!row->exists || key->epoch > row->epoch || row->epoch == 0)
		unissued_epoch(key, row);
	if (key->epoch < row->epoch || !le_election_is_led(row))
		stale_epoch(key, row);
}

/*
 * Requires that a token is current, or becomes so when the transaction commits.
 * True for the latter.
 */
static bool
require_current_or_raise(const LeKey *key, const LeElection *row,
						 bool from_setting)
{
	if (row->exists && row->kind == LE_KIND_EXTERNAL &&
		key->epoch > row->epoch)
	{
		le_external_check_raise(key, row, from_setting);
		return true;
	}
	require_current(key, row);
	return false;
}

/*
 * Reads the row, which stood at tid (if that is valid) when it was read before,
 * and keeps the table locked to the end of the transaction.
 */
static void
read_row(const LeKey *key, const ItemPointerData *tid, LeElection *row)
{
	Relation	rel = le_state_open(key->rel, AccessShareLock);

	if (tid && ItemPointerIsValid(tid))
		le_store_expect(rel, key->election, tid);
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

	read_row(&key, NULL, &row);
	count_rejection(&key, &row, LE_COUNT_MISSING);
	ereport(ERROR,
			(errcode(ERRCODE_LE_NO_TOKEN),
			 errmsg("no fencing token was presented for election \"%s\"",
					election),
			 !may_see(&row) ?
			 errdetail("Table \"%s\" is protected; presented epoch none.",
					   table) :
			 le_election_is_led(&row) ?
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
validate(Token *token, bool lock_it, int64 until)
{
	const LeKey *key = &token->key;
	LeElection	row;

	if (token->raises)
		le_external_raise(key);
	if (!le_change_ended(key) && !leads_alone(key))
	{
		if (lock_it && !token->raises)
			poll_lock(&token->lock, RowShareLock, until, key);
		read_row(key, &token->tid, &row);
		require_current(key, &row);
	}
	token->validated = true;
}

/* Is the token remembered, and if so asked, as one that was presented? */
static bool
is_remembered(const LeKey *key, bool presented)
{
	for (Token *token = newest_token(key->rel, key->election); token;
		 token = token->older)
	{
		if (token->key.epoch == key->epoch && (token->presented || !presented))
			return true;
	}
	return false;
}

/* A transaction locks every election whose mark it raises. */
static void
check_raises(void)
{
	int			count = 1;
	ListCell   *lc;

	foreach(lc, tokens)
		count += ((Token *) lfirst(lc))->raises;
	if (count > MAX_SINGLE_LOCKS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many new tokens of external elections in one transaction"),
				 errdetail("It can present a higher token than before for at most %d.",
						   MAX_SINGLE_LOCKS)));
}

/*
 * What is used after pre-commit has begun, by another extension's callback,
 * is validated on the spot.
 */
static void
remember(const LeKey *key, const ItemPointerData *tid, bool presented,
		 bool raises)
{
	MemoryContext old;
	Token	   *token;

	if (raises)
		check_raises();
	le_shmem_attach();
	if (tokens == NIL)
		le_callbacks_first();
	old = MemoryContextSwitchTo(TopTransactionContext);
	token = palloc0(sizeof(Token));
	token->key = *key;
	token->key.election = pstrdup(key->election);
	token->lock = le_lock_election(key->rel, key->election);
	token->presented = presented;
	token->raises = raises;
	token->tid = *tid;
	token->older = newest_token(key->rel, key->election);
	token->level = GetCurrentTransactionNestLevel();
	token->stats = le_stats_slot(key->rel, key->election);
	if (committing)
		validate(token, true, validation_deadline());
	tokens = lappend(tokens, token);
	if (by_election != NULL)
		index_token(token);
	else if (list_length(tokens) > MAX_UNINDEXED)
		create_table();
	MemoryContextSwitchTo(old);
	le_generation++;
}

void
le_token_use(const LeKey *key, bool from_setting)
{
	LeElection	row;
	bool		raises = false;

	if (is_remembered(key, false) && !le_change_ended(key))
		return;

	le_require_primary();
	ItemPointerSetInvalid(&row.tid);
	if (!leads_alone(key))
	{
		read_row(key, NULL, &row);
		raises = require_current_or_raise(key, &row, from_setting);
	}
	remember(key, &row.tid, false, raises);
}

void
le_token_present(const LeKey *key)
{
	LeElection	row;
	LePlaceInfo place;
	bool		raises = false;

	le_require_primary();
	ItemPointerSetInvalid(&row.tid);
	if (leads_alone(key))
		le_place_look(key, &place);
	else
		place.found = false;
	if (place.found)
		le_rights_require(place.owner, key->election);
	else
	{
		read_row(key, NULL, &row);
		if (row.exists)
			le_rights_require(row.owner, key->election);
		raises = require_current_or_raise(key, &row, false);
	}
	if (!is_remembered(key, true))
		remember(key, &row.tid, true, raises);
}

int64
le_token_presented(Oid rel, const char *election)
{
	int64		epoch;

	for (Token *token = newest_token(rel, election); token;
		 token = token->older)
	{
		if (token->presented)
			return token->key.epoch;
	}
	epoch = le_setting_epoch(election);
	return epoch != 0 ? epoch : le_session_epoch(rel, election);
}

bool
le_token_any(void)
{
	return tokens != NIL;
}

/*
 * Every transaction locks in the same order.  Of several tokens of one election
 * the highest comes first, so that none passes that it makes stale.
 */
static int
compare_tokens(const ListCell *a, const ListCell *b)
{
	const Token *ta = lfirst(a);
	const Token *tb = lfirst(b);

	if (ta->lock.order != tb->lock.order)
		return ta->lock.order < tb->lock.order ? -1 : 1;
	if (ta->key.epoch != tb->key.epoch)
		return ta->key.epoch > tb->key.epoch ? -1 : 1;
	return 0;
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

/*
 * One lock instead of very many.  Who also raises a mark changes an election,
 * so two of that kind exclude each other.
 */
static void
lock_all(int64 until)
{
	const LeKey *key = &((Token *) linitial(tokens))->key;
	LeLock		lock = le_lock_database(key->rel);
	LOCKMODE	mode = ShareLock;
	ListCell   *lc;

	foreach(lc, tokens)
	{
		if (((Token *) lfirst(lc))->raises)
			mode = ShareRowExclusiveLock;
	}
	if (le_lock_poll(&lock, mode, until) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not validate the fencing tokens of this transaction"),
				 errdetail("It depends on more than %d elections, and another transaction is changing some election of this database.",
						   MAX_SINGLE_LOCKS),
				 errhint("Run the transaction again if this process is still the leader.")));
}

void
le_token_pre_commit(void)
{
	int64		until;
	bool		one_lock;
	List	   *sorted;
	ListCell   *lc;

	committing = true;
	if (all_validated())
		return;
	until = validation_deadline();
	one_lock = list_length(tokens) > MAX_SINGLE_LOCKS;
	sorted = list_copy(tokens);
	list_sort(sorted, compare_tokens);
	if (one_lock)
		lock_all(until);
	foreach(lc, sorted)
	{
		Token	   *token = lfirst(lc);

		if (!token->validated)
			validate(token, !one_lock, until);
	}
}

bool
le_token_committing(void)
{
	return committing;
}

void
le_token_commit(void)
{
	ListCell   *lc;

	foreach(lc, tokens)
		le_stats_count(((Token *) lfirst(lc))->stats, LE_COUNT_FENCED_COMMITS);
	le_token_forget();
}

void
le_token_forget(void)
{
	if (tokens != NIL)
		le_generation++;
	tokens = NIL;
	by_election = NULL;
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

/* Takes a token out of the table. */
static void
unindex_token(Token *token)
{
	LeKey		key = {token->key.rel, token->key.election, 0};
	ElectionTokens *entry = hash_search(by_election, &key, HASH_FIND, NULL);
	Token	  **link = &entry->newest;

	while (*link != token)
		link = &(*link)->older;
	*link = token->older;
}

void
le_token_subxact_abort(void)
{
	int			level = GetCurrentTransactionNestLevel();
	ListCell   *lc;

	foreach(lc, tokens)
	{
		Token	   *token = lfirst(lc);

		if (token->level < level)
			continue;
		if (by_election != NULL)
			unindex_token(token);
		tokens = foreach_delete_current(tokens, lc);
	}
	le_generation++;
}
