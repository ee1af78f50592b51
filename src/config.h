/*-------------------------------------------------------------------------
 *
 * config.h
 *	  What holds for every term of an election.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_CONFIG_H
#define LE_CONFIG_H

#include "datatype/timestamp.h"
#include "utils/relcache.h"

#include "leader_election.h"

#define LE_LOCK_DELAY_MAX		(3600 * LE_SECOND)
#define LE_FAILOVER_LIMIT_MAX	100
#define LE_FAILOVER_WINDOW_MIN	LE_SECOND
#define LE_FAILOVER_WINDOW_MAX	(30 * 86400 * LE_SECOND)
#define LE_FAILOVER_WINDOW_DEFAULT	(3600 * LE_SECOND)

typedef struct LeConfig
{
	bool		exists;			/* the rest is the default if not */
	bool		paused;			/* no new term is granted */
	int64		ttl;			/* of a lease for which none is given; 0: none */
	int64		lock_delay;		/* after a deadline, only for its last holder */
	int			failover_limit; /* so many takeovers pause it; 0: none do */
	int64		failover_window;	/* ... within this */
	int			ntakeovers;
	TimestampTz takeovers[LE_FAILOVER_LIMIT_MAX];	/* oldest first */
} LeConfig;

/*
 * Reads what is configured, under the latest snapshot.  rel is the open table
 * of configurations.
 */
extern void le_config_read(Relation rel, const char *election,
						   LeConfig *config);

/*
 * Stores it.  rel is open in RowExclusiveLock; the caller holds the election's
 * lock in ShareUpdateExclusiveLock or above and read the row under it.
 */
extern void le_config_write(Relation rel, const char *election,
							const LeConfig *config);

/*
 * Counts a takeover, and pauses the election if it was one too many.  False if
 * nothing has changed, as none are counted.
 */
extern bool le_config_count_takeover(LeConfig *config, TimestampTz now);

#endif							/* LE_CONFIG_H */
