/*-------------------------------------------------------------------------
 *
 * session.c
 *	  The locks of session terms: a term lives while its lock is held.
 *
 * Each session term has a session-level advisory lock of its own, whose fourth
 * field keeps it apart from every lock that SQL can ask for.  It must be an
 * advisory lock, since only those are given back by DISCARD ALL and by
 * pg_advisory_unlock_all(), which is what poolers and applications do with a
 * session that is to forget everything.
 *
 * The holder has it in ExclusiveLock; who wants to know whether anybody has
 * it asks for ShareLock, conditionally, and gives that back: two who ask do
 * not take each other for the holder.
 *
 * Whether this session holds a lock is read from its own lock table at each
 * question.  The list here only says which terms to ask about; it never says
 * that one is held.
 *
 * At exit the locks are given back before the server does it, so that those
 * who wait can be woken when the term has ended.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "clock.h"
#include "compat.h"
#include "session.h"
#include "shmem.h"

/* Between two looks whether a session has ended that was told to */
#define END_PAUSE_MS		10

/* "LE": no function of SQL sets it, they use 1 and 2. */
#define ADVISORY_FIELD4		0x4c45

typedef struct SessionTerm
{
	LeKey		key;
	int64		ttl;			/* 0 if none */
} SessionTerm;

static List *terms = NIL;		/* of SessionTerm, in TopMemoryContext */

static LOCKTAG
make_tag(Oid database, int64 epoch)
{
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, database, (uint32) (epoch >> 32),
						 (uint32) epoch, ADVISORY_FIELD4);
	return tag;
}

static LOCKTAG
term_tag(const LeKey *key)
{
	return make_tag(MyDatabaseId, key->epoch);
}

static bool
holds(const LeKey *key)
{
	LOCKTAG		tag = term_tag(key);

	return le_lock_held_by_me(&tag, ExclusiveLock);
}

/* The term in the list, held or not; NULL if it is not there. */
static SessionTerm *
find_term(const LeKey *key)
{
	ListCell   *lc;

	foreach(lc, terms)
	{
		SessionTerm *term = lfirst(lc);

		if (le_key_equal(&term->key, key))
			return term;
	}
	return NULL;
}

/* Forgets the terms whose lock is gone, by whatever way. */
static void
prune_terms(void)
{
	ListCell   *lc;

	foreach(lc, terms)
	{
		SessionTerm *term = lfirst(lc);

		if (!holds(&term->key))
		{
			terms = foreach_delete_current(terms, lc);
			pfree((char *) term->key.election);
			pfree(term);
		}
	}
}

static void
end_of_session(int code, Datum arg)
{
	ListCell   *lc;

	foreach(lc, terms)
		le_session_drop(&((SessionTerm *) lfirst(lc))->key);
	ConditionVariableBroadcast(le_shmem_ended());
}

void
le_session_take(const LeKey *key, int64 ttl)
{
	static bool registered = false;
	LOCKTAG		tag = term_tag(key);
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	SessionTerm *term = palloc(sizeof(SessionTerm));

	if (!registered)
	{
		before_shmem_exit(end_of_session, (Datum) 0);
		registered = true;
	}
	prune_terms();
	term->key = *key;
	term->key.election = pstrdup(key->election);
	term->ttl = ttl;
	terms = lappend(terms, term);
	MemoryContextSwitchTo(old);

	/* The epoch is new, so nobody can have it or ask for it. */
	if (LockAcquire(&tag, ExclusiveLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not take the lock of a new term of election \"%s\"",
						key->election)));
}

void
le_session_drop(const LeKey *key)
{
	LOCKTAG		tag = term_tag(key);

	if (find_term(key) != NULL && holds(key))
		LockRelease(&tag, ExclusiveLock, true);
}

void
le_session_drop_earlier(const LeKey *key)
{
	ListCell   *lc;

	foreach(lc, terms)
	{
		SessionTerm *term = lfirst(lc);

		if (term->key.rel == key->rel && term->key.epoch < key->epoch &&
			strcmp(term->key.election, key->election) == 0)
			le_session_drop(&term->key);
	}
}

bool
le_session_mine(const LeKey *key)
{
	return find_term(key) != NULL && holds(key);
}

bool
le_session_mine_alone(const LeKey *key)
{
	SessionTerm *term = terms == NIL ? NULL : find_term(key);

	return term != NULL && term->ttl == 0 && holds(key);
}

bool
le_session_alive(const LeKey *key)
{
	return le_session_alive_in(MyDatabaseId, key->epoch);
}

bool
le_session_alive_in(Oid database, int64 epoch)
{
	LOCKTAG		tag = make_tag(database, epoch);

	/* Our own lock would not keep us from getting another. */
	if (le_lock_held_by_me(&tag, ExclusiveLock))
		return true;
	if (LockAcquire(&tag, ShareLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		return true;
	LockRelease(&tag, ShareLock, false);
	return false;
}

/* The process that holds the term's lock, as the lock manager has it; or 0 */
static int
holder_pid(const LOCKTAG *tag)
{
	LockData   *locks = GetLockStatusData();

	for (int i = 0; i < locks->nelements; i++)
	{
		const LockInstanceData *lock = &locks->locks[i];

		if (memcmp(&lock->locktag, tag, sizeof(LOCKTAG)) == 0 &&
			(lock->holdMask & LOCKBIT_ON(ExclusiveLock)) != 0)
			return lock->pid;
	}
	return 0;
}

/*
 * Takes the lock until the end of the (sub)transaction, whichever portal runs.
 * Not as the leader has it, or the next operator would end us for it.
 */
static bool
take_over(const LOCKTAG *tag)
{
	ResourceOwner owner = CurrentResourceOwner;
	LockAcquireResult result;

	CurrentResourceOwner = CurTransactionResourceOwner;
	result = LockAcquire(tag, ShareRowExclusiveLock, false, true);
	CurrentResourceOwner = owner;
	return result != LOCKACQUIRE_NOT_AVAIL;
}

bool
le_session_end(const LeKey *key, int64 until)
{
	static uint32 wait_event = 0;
	LOCKTAG		tag = term_tag(key);
	int			signalled = 0;

	if (wait_event == 0)
		wait_event = le_wait_event_new("LeaderElectionDepose");
	while (!take_over(&tag))
	{
		int			pid;

		if (le_clock_now() >= until)
			return false;
		/* Only while it is seen to hold the lock, and once. */
		pid = holder_pid(&tag);
		if (pid != 0 && pid != signalled)
		{
			ereport(NOTICE,
					(errmsg("ending the session with process ID %d, which leads election \"%s\"",
							pid, key->election)));
			(void) kill(pid, SIGTERM);
			signalled = pid;
		}
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 END_PAUSE_MS, wait_event);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	return true;
}

int64
le_session_epoch(Oid rel, const char *election)
{
	int64		epoch = 0;
	ListCell   *lc;

	foreach(lc, terms)
	{
		SessionTerm *term = lfirst(lc);

		if (term->key.rel == rel && term->key.epoch > epoch &&
			strcmp(term->key.election, election) == 0 && holds(&term->key))
			epoch = term->key.epoch;
	}
	return epoch;
}

const char *
le_session_holder(void)
{
	static char holder[LE_NAME_MAX + 1];

	if (holder[0] == '\0')
		snprintf(holder, sizeof(holder), "%.*s %d %08x", NAMEDATALEN,
				 application_name && application_name[0] ?
				 application_name : "session",
				 MyProcPid, pg_prng_uint32(&pg_global_prng_state));
	return holder;
}
