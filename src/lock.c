/*-------------------------------------------------------------------------
 *
 * lock.c
 *	  The heavyweight lock of an election.
 *
 * The tag is LOCKTAG_OBJECT with our own table as its class: the server uses
 * catalogs there only, so nobody else's lock can meet ours, and no user can
 * release it.  The object is a hash of the election's name.  Two names of one
 * hash wait for each other needlessly; rows are read by name, so that costs
 * nothing else.
 *
 * Order: the database's lock, the election's lock, the counter's lock; then
 * relation and buffer locks of our tables.  (The counter itself may be locked
 * as a relation before: that mode does not conflict with itself.)
 *
 * A candidate holds the election's lock in ShareUpdateExclusive while it asks
 * for the database's and then for the election's in Exclusive; that cannot
 * deadlock with another candidate, as only one gets that far, nor for long with
 * a committing transaction: those that only depend on elections never wait in a
 * queue, those that raise a mark wait for less than deadlock_timeout.
 *
 * The database's lock stands for the locks of all elections: a commit with
 * very many of them takes it in Share mode instead, and every change of an
 * epoch or holder takes it in RowExclusive mode, which conflicts with Share
 * but not with itself.  A commit that does both takes ShareRowExclusive.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/array.h"
#include "utils/fmgrprotos.h"
#include "utils/resowner.h"

#include "clock.h"
#include "compat.h"
#include "leader_election.h"
#include "lock.h"

#define QUEUE_LIMIT_MS		500
#define POLL_FIRST_US		(1 * LE_MS)
#define POLL_LAST_US		(20 * LE_MS)
#define POLL_LOOK_US		(50 * LE_MS)	/* then ask who holds the lock */

static LeLock
make_lock(Oid rel, uint32 object, uint16 subobject)
{
	LeLock		lock;

	SET_LOCKTAG_OBJECT(lock.tag, MyDatabaseId, rel, object, subobject);
	lock.order = ((uint64) object << 16) | subobject;
	return lock;
}

LeLock
le_lock_election(Oid rel, const char *election)
{
	uint64		hash = hash_bytes_extended((const unsigned char *) election,
										   strlen(election), 0);

	/* Odd, so that the two tags below stay apart from every election's. */
	return make_lock(rel, (uint32) hash, (uint16) (hash >> 32) | 1);
}

LeLock
le_lock_database(Oid rel)
{
	return make_lock(rel, 0, 0);
}

LeLock
le_lock_counter(Oid rel)
{
	return make_lock(rel, 1, 0);
}

/*
 * All locks belong to the (sub)transaction, not to the portal that happens to
 * run: only so can one that came out of a subtransaction be released.
 */
static LockAcquireResult
acquire(const LeLock *lock, LOCKMODE mode, bool dont_wait)
{
	ResourceOwner owner = CurrentResourceOwner;
	LockAcquireResult result;

	CurrentResourceOwner = CurTransactionResourceOwner;
	result = LockAcquire(&lock->tag, mode, false, dont_wait);
	CurrentResourceOwner = owner;
	return result;
}

bool
le_lock_try(const LeLock *lock, LOCKMODE mode)
{
	return acquire(lock, mode, true) != LOCKACQUIRE_NOT_AVAIL;
}

void
le_lock_wait(const LeLock *lock, LOCKMODE mode)
{
	(void) acquire(lock, mode, false);
}

void
le_lock_release(const LeLock *lock, LOCKMODE mode)
{
	ResourceOwner owner = CurrentResourceOwner;

	CurrentResourceOwner = CurTransactionResourceOwner;
	LockRelease(&lock->tag, mode, false);
	CurrentResourceOwner = owner;
}

/* How long we may queue, in milliseconds; the user's limit may be shorter. */
static int
queue_limit(void)
{
	int			limit = Max(Min(QUEUE_LIMIT_MS, DeadlockTimeout / 2), 1);

	return LockTimeout > 0 ? Min(LockTimeout, limit) : limit;
}

/*
 * A conditional lock starves behind committing writers, whose locks overlap;
 * one in the queue is next.  The wait ends before the deadlock detector looks
 * at us, so that a cycle with a user's own locks costs a "busy" and not an
 * aborted transaction.  The server ends the wait by an error, and catching
 * that takes a subtransaction.
 */
bool
le_lock_queue(const LeLock *lock, LOCKMODE mode)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	int			saved_timeout = LockTimeout;
	volatile bool granted = false;

	if (le_lock_try(lock, mode))
		return true;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		LockTimeout = queue_limit();
		le_lock_wait(lock, mode);
		LockTimeout = saved_timeout;
		granted = true;
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		LockTimeout = saved_timeout;
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
			ReThrowError(error);
		FreeErrorData(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return granted;
}

/*
 * At commit no subtransaction can catch the end of the wait, and none is
 * needed: the transaction fails.
 */
void
le_lock_change_at_commit(Oid rel, const char *election)
{
	LeLock		database = le_lock_database(rel);
	LeLock		lock = le_lock_election(rel, election);
	MemoryContext context = CurrentMemoryContext;
	int			saved_timeout = LockTimeout;

	PG_TRY();
	{
		LockTimeout = queue_limit();
		le_lock_wait(&database, RowExclusiveLock);
		le_lock_wait(&lock, ExclusiveLock);
		LockTimeout = saved_timeout;
	}
	PG_CATCH();
	{
		LockTimeout = saved_timeout;
		MemoryContextSwitchTo(context);
		if (geterrcode() != ERRCODE_LOCK_NOT_AVAILABLE)
			PG_RE_THROW();
		FlushErrorState();
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not lock election \"%s\" in time", election),
				 errdetail("Another transaction depends on the election, or is changing it."),
				 errhint("Run the transaction again.")));
	}
	PG_END_TRY();
}

/* Is the backend with that pid waiting for this one? */
static bool
waits_for_us(int pid)
{
	Datum		blockers = DirectFunctionCall1(pg_blocking_pids,
											   Int32GetDatum(pid));
	Datum	   *pids;
	int			count;

	deconstruct_array(DatumGetArrayTypeP(blockers), INT4OID, sizeof(int32),
					  true, TYPALIGN_INT, &pids, NULL, &count);
	for (int i = 0; i < count; i++)
	{
		if (DatumGetInt32(pids[i]) == MyProcPid)
			return true;
	}
	return false;
}

static bool
holder_waits_for_us(const LeLock *lock, LOCKMODE mode)
{
	VirtualTransactionId *holders = GetLockConflicts(&lock->tag, mode, NULL);

	for (; VirtualTransactionIdIsValid(*holders); holders++)
	{
		PGPROC	   *proc = le_vxid_proc(*holders);

		if (proc != NULL && proc->pid != 0 && waits_for_us(proc->pid))
			return true;
	}
	return false;
}

/*
 * A commit must not wait in the queue: its wait would let the deadlock
 * detector choose the new leader, when that one waits for a row of ours, and
 * no statement_timeout ends it.
 */
const char *
le_lock_poll(const LeLock *lock, LOCKMODE mode, int64 until)
{
	static uint32 wait_event = 0;
	int64		pause = POLL_FIRST_US;
	int64		look_at = le_clock_now() + POLL_LOOK_US;

	if (wait_event == 0)
		wait_event = le_wait_event_new("LeaderElectionLock");

	while (!le_lock_try(lock, mode))
	{
		int64		now = le_clock_now();

		if (now >= until)
			return "Another transaction is changing the election.";
		if (now >= look_at)
		{
			if (holder_waits_for_us(lock, mode))
				return "The transaction that is changing the election waits for this one.";
			look_at = now + POLL_LOOK_US;
		}
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Max(Min(pause, until - now) / LE_MS, 1), wait_event);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		pause = Min(pause * 2, POLL_LAST_US);
	}
	return NULL;
}

bool
le_lock_change(Oid rel, const char *election)
{
	LeLock		database = le_lock_database(rel);
	LeLock		lock = le_lock_election(rel, election);

	if (!le_lock_queue(&database, RowExclusiveLock))
		return false;
	if (le_lock_queue(&lock, ExclusiveLock))
		return true;
	le_lock_release(&database, RowExclusiveLock);
	return false;
}

void
le_lock_change_release(Oid rel, const char *election)
{
	LeLock		database = le_lock_database(rel);
	LeLock		lock = le_lock_election(rel, election);

	le_lock_release(&lock, ExclusiveLock);
	le_lock_release(&database, RowExclusiveLock);
}
