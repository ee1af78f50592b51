/*-------------------------------------------------------------------------
 *
 * standby.c
 *	  What the synchronous standbys have.
 *
 * That a commit has returned proves nothing, as its wait can be cancelled.  So
 * what standbys have acknowledged is read where their replies are kept; that
 * position never goes back while the server runs.  Both questions are about the
 * server, and do not ask synchronous_commit, which is the session's.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/lwlock.h"

#include "standby.h"

bool
le_standby_defined(void)
{
	if (max_wal_senders == 0)
		return false;
	/* Minor releases differ in how the checkpointer's answer is kept. */
#ifdef SYNC_STANDBY_DEFINED
	if (WalSndCtl->sync_standbys_status & SYNC_STANDBY_INIT)
		return (WalSndCtl->sync_standbys_status & SYNC_STANDBY_DEFINED) != 0;
	return SyncRepStandbyNames != NULL && SyncRepStandbyNames[0] != '\0';
#else
	return WalSndCtl->sync_standbys_defined;
#endif
}

bool
le_standby_has(XLogRecPtr position)
{
	bool		has;

	if (XLogRecPtrIsInvalid(position) || !le_standby_defined())
		return true;

	/*
	 * Whoever waits is woken, when standbys are no longer wanted, before that
	 * is written down, but under the lock.
	 */
	LWLockAcquire(SyncRepLock, LW_SHARED);
	has = !le_standby_defined() ||
		WalSndCtl->lsn[SYNC_REP_WAIT_FLUSH] >= position;
	LWLockRelease(SyncRepLock);
	return has;
}

/*
 * The server only tells where the next record will begin, which is behind the
 * header of a page that may never be written.
 */
XLogRecPtr
le_standby_log_end(void)
{
	XLogRecPtr	next = GetXLogInsertRecPtr();

	if (XLogSegmentOffset(next, wal_segment_size) == SizeOfXLogLongPHD)
		return next - SizeOfXLogLongPHD;
	if (next % XLOG_BLCKSZ == SizeOfXLogShortPHD)
		return next - SizeOfXLogShortPHD;
	return next;
}
