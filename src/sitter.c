/*-------------------------------------------------------------------------
 *
 * sitter.c
 *	  Ends a transaction that sits on an election.
 *
 * The kernel sends this backend SIGTERM, as an administrator would: that works
 * in every state, also while it waits for its client.  The server's own
 * timeouts are of no use here, as it stops all of them at every error, also at
 * those that leave the transaction and its locks standing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <time.h>

#include "clock.h"
#include "leader_election.h"
#include "sitter.h"

static bool made = false;
static timer_t timer;
static int64 set_to = 0;		/* when it fires, or 0 */

static void
make_timer(void)
{
	struct sigevent event;

	memset(&event, 0, sizeof(event));
	event.sigev_notify = SIGEV_SIGNAL;
	event.sigev_signo = SIGTERM;
	if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not create a timer: %m")));
	made = true;
}

/* A time of 0 stops the timer; one that has passed fires at once. */
static void
set_timer(int64 when)
{
	struct itimerspec setting;

	if (when == set_to)
		return;
	set_to = when;
	memset(&setting, 0, sizeof(setting));
	setting.it_value.tv_sec = when / LE_SECOND;
	setting.it_value.tv_nsec = when % LE_SECOND * 1000;
	(void) timer_settime(timer, TIMER_ABSTIME, &setting, NULL);
}

void
le_sitter_end_at(int64 until)
{
	if (!made)
		make_timer();
	set_timer(until);
}

void
le_sitter_spare(void)
{
	set_timer(0);
}
