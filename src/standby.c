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
#include "utils/guc.h"

#include "compat.h"
#include "standby.h"

/* Does the server that runs keep the checkpointer's answer as bits? */
static bool
status_is_bits(void)
{
	static int	version = 0;

	if (version == 0)
		version = atoi(GetConfigOption("server_version_num", false, false));
	return version >= LE_SYNC_BITS_SINCE;
}

bool
le_standby_defined(void)
{
	uint8		status;

	if (max_wal_senders == 0)
		return false;
	status = *(volatile uint8 *) &WalSndCtl->LE_SYNC_STATUS;
	if (!status_is_bits())
		return status != 0;
	if (status & LE_SYNC_BIT_KNOWN)
		return (status & LE_SYNC_BIT_DEFINED) != 0;
	return SyncRepStandbyNames != NULL && SyncRepStandbyNames[0] != '\0';
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
