/*-------------------------------------------------------------------------
 *
 * standby.h
 *	  What the synchronous standbys have.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_STANDBY_H
#define LE_STANDBY_H

#include "access/xlogdefs.h"

/* Does the server wait for synchronous standbys? */
extern bool le_standby_defined(void);

/*
 * Have they, if there are any, flushed everything up to that position?  True
 * for an invalid one, which nothing is needed for.
 */
extern bool le_standby_has(XLogRecPtr position);

/* The end of the last record of the log, in memory or on disk. */
extern XLogRecPtr le_standby_log_end(void);

#endif							/* LE_STANDBY_H */
