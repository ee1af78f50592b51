/*-------------------------------------------------------------------------
 *
 * guc.h
 *	  The extension's settings, but for leader_election.fence.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_GUC_H
#define LE_GUC_H

extern int	le_default_ttl_ms;
extern bool le_enforce;
extern int	le_commit_timeout_ms;
extern int	le_max_elections;
extern int	le_max_leases;
extern bool le_notify;
extern bool le_history;
extern bool le_require_sync_standby;

/* Defines all settings; called once, when the library is loaded. */
extern void le_guc_init(void);

#endif							/* LE_GUC_H */
