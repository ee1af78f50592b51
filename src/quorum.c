/*-------------------------------------------------------------------------
 *
 * quorum.c
 *	  Until when the synchronous standbys vouch for this server.
 *
 * A primary that is cut off cannot know whether a standby was promoted.  So
 * with synchronous standbys a lease lasts one TTL from the last time at which a
 * quorum of them still followed, not from its last renewal.  To ask them is to
 * write a record to the log: when they have flushed it, they followed at some
 * time after the clock was read for it.  A renewal that finds the last record
 * old writes the next one, if that was acknowledged, and does not wait: what
 * comes of it, a later renewal sees.  One record serves all leases.
 *
 * The record does nothing, neither when it is replayed nor for logical
 * decoding, and does not keep an idle server from skipping its checkpoints.
 *
 * Acknowledged positions never go back while the server runs, and a record is
 * as old as its reading of the clock, whenever its acknowledgement is looked
 * at.  So another choice of standbys needs no special care.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/rmgr.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "catalog/pg_control.h"

#include "clock.h"
#include "leader_election.h"
#include "quorum.h"
#include "shmem.h"
#include "standby.h"

/* Between two records at least this, or for short leases the sixth of a TTL */
#define ASK_PAUSE			(500 * LE_MS)

static XLogRecPtr
write_record(void)
{
	char		nothing = 0;

	XLogBeginInsert();
	XLogSetRecordFlags(XLOG_MARK_UNIMPORTANT);
	XLogRegisterData(&nothing, sizeof(nothing));
	return XLogInsert(RM_XLOG_ID, XLOG_NOOP);
}

static bool
is_answered(const LeQuorum *quorum)
{
	return le_standby_has(quorum->asked_lsn);
}

int64
le_quorum_vouched(int64 now)
{
	const LeQuorum *quorum = &le_shmem_places()->quorum;

	if (!le_standby_defined())
		return now;
	return is_answered(quorum) ? Max(quorum->asked, quorum->acknowledged) :
		quorum->acknowledged;
}

bool
le_quorum_due(int64 ttl, int64 now)
{
	const LeQuorum *quorum = &le_shmem_places()->quorum;

	return le_standby_defined() &&
		now - quorum->asked >= Min(ASK_PAUSE, ttl / 6) && is_answered(quorum);
}

void
le_quorum_ask(int64 ttl)
{
	LeQuorum   *quorum = &le_shmem_places()->quorum;
	XLogRecPtr	written = InvalidXLogRecPtr;
	int64		now;

	LWLockAcquire(le_shmem_lock(), LW_EXCLUSIVE);
	now = le_clock_now();
	if (le_quorum_due(ttl, now))
	{
		written = write_record();
		quorum->acknowledged = le_quorum_vouched(now);
		quorum->asked = now;
		quorum->asked_lsn = written;
	}
	LWLockRelease(le_shmem_lock());

	/* Standbys get what is flushed; others may renew meanwhile. */
	if (!XLogRecPtrIsInvalid(written))
		XLogFlush(written);
}

XLogRecPtr
le_quorum_begin(int64 now)
{
	LeQuorum   *quorum = &le_shmem_places()->quorum;

	quorum->acknowledged = 0;
	quorum->asked = 0;
	quorum->asked_lsn = InvalidXLogRecPtr;
	if (!le_standby_defined())
		return le_standby_log_end();

	/*
	 * What standbys acknowledged before may be all that there is: a record of
	 * its own tells whether they still follow.
	 */
	quorum->asked_lsn = write_record();
	quorum->asked = now;
	return quorum->asked_lsn;
}

void
le_quorum_acknowledged(int64 begun)
{
	LeQuorum   *quorum = &le_shmem_places()->quorum;

	quorum->acknowledged = Max(quorum->acknowledged, begun);
}
