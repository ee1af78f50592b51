/*-------------------------------------------------------------------------
 *
 * change.c
 *	  What the current transaction has done to elections.
 *
 * A change is in the row when it is made, and in shared memory only when it
 * has been decided:
 *	  at pre-commit		the place of an ended term is closing
 *	  after commit		an ended one is free, a granted one open
 *	  after abort		a closing one is open again, a granted one free
 * The lock of a session term goes with its place.
 * Each change belongs to the nesting level that made it, and goes with the
 * subtransaction that is rolled back.
 *
 * The list lives in TopTransactionContext, which still stands when the
 * callbacks for commit and abort run; those allocate nothing.
 *
 * A transaction that changes an election keeps everybody else from it, so it
 * may not sit there: the backend is ended at the earliest of its changes' time
 * limits.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "commands/async.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "storage/condition_variable.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "change.h"
#include "clock.h"
#include "guc.h"
#include "place.h"
#include "session.h"
#include "shmem.h"
#include "sitter.h"
#include "standby.h"
#include "stats.h"

#define NOTIFY_CHANNEL		"leader_election"

typedef struct Change
{
	LeChangeKind kind;
	LeKey		key;
	int64		until;
	int			level;			/* GetCurrentTransactionNestLevel() */
	int			stats;			/* slot in which it is counted, or -1 */
	bool		created;		/* the election */
	bool		unknown;		/* which did not exist before the transaction */
	char	   *owner;			/* the new one, or NULL */
	int64		lock_delay;		/* the new one, or -1 */
} Change;

static List *changes = NIL;		/* of Change, oldest first */
static bool undecided = false;	/* is there one that pre-commit has not seen? */
static bool wake_wanted = false;	/* tell who waits, once locks are gone */

/*
 * Wakes those who wait for the end of a term.  Earlier than this they would
 * only find the election locked.
 */
static void
after_locks(ResourceReleasePhase phase, bool is_commit, bool is_top_level,
			void *arg)
{
	if (phase != RESOURCE_RELEASE_AFTER_LOCKS || !wake_wanted)
		return;
	wake_wanted = false;
	ConditionVariableBroadcast(le_shmem_ended());
}

void
le_change_init(void)
{
	RegisterResourceReleaseCallback(after_locks, NULL);
}

/* Sets the time limit to the earliest one, or none if nothing was changed. */
static void
set_limit(void)
{
	int64		until = PG_INT64_MAX;
	ListCell   *lc;

	foreach(lc, changes)
		until = Min(until, ((Change *) lfirst(lc))->until);
	if (changes != NIL)
		le_sitter_end_at(until);
	else
		le_sitter_spare();
}

static Change *
note(LeChangeKind kind, const LeKey *key, int64 until)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);
	Change	   *change = palloc0(sizeof(Change));

	change->kind = kind;
	change->stats = kind == LE_CHANGE_BEGUN || kind == LE_CHANGE_REPLACED ||
		kind == LE_CHANGE_RAISED ? le_stats_slot(key->rel, key->election) : -1;
	change->lock_delay = -1;
	change->key = *key;
	change->key.election = pstrdup(key->election);
	change->until = until;
	change->level = GetCurrentTransactionNestLevel();
	changes = lappend(changes, change);
	undecided = true;
	MemoryContextSwitchTo(old);
	le_generation++;
	set_limit();
	return change;
}

void
le_change_note(LeChangeKind kind, const LeKey *key, int64 until)
{
	(void) note(kind, key, until);
}

static bool
has_dropped(const LeKey *key)
{
	ListCell   *lc;

	foreach(lc, changes)
	{
		Change	   *change = lfirst(lc);

		if (change->kind == LE_CHANGE_DROPPED && change->key.rel == key->rel &&
			strcmp(change->key.election, key->election) == 0)
			return true;
	}
	return false;
}

void
le_change_created(LeChangeKind kind, const LeKey *key, int64 until)
{
	bool		unknown = !has_dropped(key);
	Change	   *change = note(kind, key, until);

	change->created = true;
	change->unknown = unknown;
}

void
le_change_configured(const LeKey *key, const char *owner, int64 lock_delay,
					 int64 until)
{
	Change	   *change = note(LE_CHANGE_OTHER, key, until);

	if (owner)
		change->owner = MemoryContextStrdup(TopTransactionContext, owner);
	change->lock_delay = lock_delay;
}

static bool
has_change(LeChangeKind kind, const LeKey *key)
{
	ListCell   *lc;

	foreach(lc, changes)
	{
		Change	   *change = lfirst(lc);

		if (change->kind == kind && le_key_equal(&change->key, key))
			return true;
	}
	return false;
}

bool
le_change_begun(const LeKey *key)
{
	return has_change(LE_CHANGE_BEGUN, key);
}

bool
le_change_ended(const LeKey *key)
{
	return has_change(LE_CHANGE_ENDED, key);
}

bool
le_change_any(void)
{
	return changes != NIL;
}

/* Calls a transition for each change of a kind. */
static void
for_each(LeChangeKind kind, void (*transition) (const LeKey *key))
{
	ListCell   *lc;

	foreach(lc, changes)
	{
		Change	   *change = lfirst(lc);

		if (change->kind == kind)
			transition(&change->key);
	}
}

static void
forget_changes(void)
{
	changes = NIL;
	undecided = false;
	set_limit();
	le_generation++;
}

/*
 * Tells who listens that a term began or ended.  Anybody can listen, and forge
 * a notification, so it says no more than where to look.
 */
static void
notify(const Change *change, const char *event)
{
	StringInfoData payload;

	initStringInfo(&payload);
	appendStringInfoString(&payload, "{\"election\": ");
	escape_json(&payload, change->key.election);
	appendStringInfo(&payload, ", \"event\": \"%s\"}", event);
	Async_Notify(NOTIFY_CHANNEL, payload.data);
	pfree(payload.data);
}

/*
 * A term that began and ended in this transaction was never there.  What ended
 * is told first, so that the last word on an election is how it stands.
 */
static void
notify_all(void)
{
	ListCell   *lc;

	foreach(lc, changes)
	{
		Change	   *change = lfirst(lc);

		if ((change->kind == LE_CHANGE_ENDED ||
			 change->kind == LE_CHANGE_REPLACED) &&
			!le_change_begun(&change->key))
			notify(change, "end");
	}
	foreach(lc, changes)
	{
		Change	   *change = lfirst(lc);

		if (change->kind == LE_CHANGE_RAISED ||
			(change->kind == LE_CHANGE_BEGUN &&
			 !le_change_ended(&change->key)))
			notify(change, "begin");
	}
}

/*
 * May raise errors.  The last thing before the commit proper, after the
 * tokens were found current.
 */
void
le_change_pre_commit(void)
{
	if (!undecided || changes == NIL)
		return;
	undecided = false;

	/*
	 * Nobody may be told of a term that a crash could undo.  The session's
	 * own value returns at the end of the transaction.
	 */
	if (synchronous_commit < SYNCHRONOUS_COMMIT_ON)
		(void) set_config_option("synchronous_commit", "on", PGC_USERSET,
								 PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0,
								 false);

	if (le_notify)
		notify_all();
	for_each(LE_CHANGE_ENDED, le_place_closing);

	/* From here on it is committing, and may wait for a standby. */
	le_sitter_spare();
}

/*
 * Was the wait for synchronous standbys cut short?  Then the term that was
 * granted counts only when they have caught up.
 */
static bool
commit_unacknowledged(void)
{
	return !le_standby_has(XactLastCommitEnd);
}

/*
 * The client must not take the end of a cancelled wait for a success, so it
 * gets no answer at all, as when the server ends such a wait by itself.
 */
static void
lose_client(void)
{
	whereToSendOutput = DestNone;
	InterruptPending = true;
	ProcDiePending = true;
}

/* Was the election that was dropped by that change created anew later? */
static bool
created_again(const Change *dropped)
{
	bool		created = false;
	ListCell   *lc;

	/* The last word counts. */
	foreach(lc, changes)
	{
		Change	   *change = lfirst(lc);

		if (change->key.rel == dropped->key.rel &&
			strcmp(change->key.election, dropped->key.election) == 0)
			created = change->created ||
				(created && change->kind != LE_CHANGE_DROPPED);
	}
	return created;
}

static void
count(const Change *change)
{
	if (change->kind == LE_CHANGE_BEGUN || change->kind == LE_CHANGE_RAISED)
		le_stats_count_term(change->stats);
	else if (change->kind == LE_CHANGE_REPLACED)
		le_stats_count(change->stats, LE_COUNT_TAKEOVERS);
	else if (change->kind == LE_CHANGE_DROPPED && created_again(change))
		le_stats_reset(change->key.rel, change->key.election);
	else if (change->kind == LE_CHANGE_DROPPED)
		le_stats_forget(change->key.rel, change->key.election);
}

void
le_change_commit(void)
{
	bool		unacknowledged;
	ListCell   *lc;

	if (changes == NIL)
		return;
	unacknowledged = commit_unacknowledged();

	/* What was ended first: a term may have been begun and ended here. */
	for_each(LE_CHANGE_ENDED, le_place_free);
	for_each(LE_CHANGE_ENDED, le_session_drop);
	foreach(lc, changes)
	{
		Change	   *change = lfirst(lc);

		if (change->kind == LE_CHANGE_BEGUN)
		{
			le_place_open(&change->key, unacknowledged ?
						  XactLastCommitEnd : InvalidXLogRecPtr);
			le_session_drop_earlier(&change->key);
		}
		if (change->owner || change->lock_delay >= 0)
			le_place_configure(&change->key, change->owner,
							   change->lock_delay);
		count(change);
	}
	wake_wanted = true;
	if (unacknowledged)
		lose_client();
	forget_changes();
}

/* What a change that is rolled back leaves outside the row */
static void
unmake(const Change *change)
{
	if (change->kind == LE_CHANGE_BEGUN)
	{
		le_place_free(&change->key);
		le_session_drop(&change->key);
	}
	if (change->unknown)
		le_stats_forget(change->key.rel, change->key.election);
}

void
le_change_abort(void)
{
	ListCell   *lc;

	if (changes == NIL)
		return;
	for_each(LE_CHANGE_ENDED, le_place_reopen);
	foreach(lc, changes)
		unmake(lfirst(lc));
	wake_wanted = true;
	forget_changes();
}

void
le_change_subxact_commit(void)
{
	int			level = GetCurrentTransactionNestLevel();
	ListCell   *lc;

	foreach(lc, changes)
	{
		Change	   *change = lfirst(lc);

		change->level = Min(change->level, level - 1);
	}
}

void
le_change_subxact_abort(void)
{
	int			level = GetCurrentTransactionNestLevel();
	ListCell   *lc;

	if (changes == NIL)
		return;
	foreach(lc, changes)
	{
		Change	   *change = lfirst(lc);

		if (change->level < level)
			continue;
		unmake(change);
		changes = foreach_delete_current(changes, lc);
	}
	wake_wanted = true;
	le_generation++;
	set_limit();
}
