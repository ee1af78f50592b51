/*-------------------------------------------------------------------------
 *
 * wait.c
 *	  A bid that waits until it leads or its time is over.
 *
 * It wakes when a term ends, and by itself when the lease that is in its way
 * runs out.  No lock is held while it sleeps.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/condition_variable.h"

#include "clock.h"
#include "compat.h"
#include "election.h"
#include "rights.h"
#include "shmem.h"
#include "wait.h"

/* Between two bids of a waiting call that met somebody at work */
#define BUSY_PAUSE_FIRST	(2 * LE_MS)
#define BUSY_PAUSE_LAST		(50 * LE_MS)
/* ... a session, which may end without a word (DISCARD ALL) */
#define SESSION_PAUSE		(50 * LE_MS)
/* How often a waiting call looks whether its client is still there */
#define CLIENT_CHECK		(1 * LE_SECOND)

/*
 * Whoever has gone away while waiting must not become the leader.  Asked
 * before each bid, whatever client_connection_check_interval says.
 */
static void
require_client(void)
{
	if (MyProcPort != NULL && !pq_check_connection())
	{
		ClientConnectionLost = true;
		InterruptPending = true;
	}
	CHECK_FOR_INTERRUPTS();
}

void
le_wait_acquire(const LeRelations *relations, const LeBid *bid,
				int64 until, LeAnswer *answer)
{
	static uint32 wait_event = 0;
	LeRelations ours = *relations;
	int64		busy_pause = BUSY_PAUSE_FIRST;

	if (wait_event == 0)
		wait_event = le_wait_event_new("LeaderElectionAcquire");
	le_require_primary();
	le_shmem_attach();
	for (;;)
	{
		int64		pause;

		require_client();
		/* Before the look, or an end that comes after it would wake nobody. */
		ConditionVariablePrepareToSleep(le_shmem_ended());
		le_election_acquire(&ours, bid, answer);
		if (answer->is_leader || le_clock_now() >= until)
			break;
		pause = answer->kept_back > 0 ? answer->kept_back :
			answer->busy || answer->left < 0 ? busy_pause : answer->left;
		pause = Min(pause, CLIENT_CHECK);
		if (answer->session)
			pause = Min(pause, SESSION_PAUSE);
		busy_pause = answer->busy ? Min(busy_pause * 2, BUSY_PAUSE_LAST) :
			BUSY_PAUSE_FIRST;
		(void) ConditionVariableTimedSleep(le_shmem_ended(),
										   le_clock_ms_until(Min(le_clock_now() + pause,
																 until)),
										   wait_event);
	}
	ConditionVariableCancelSleep();
}
