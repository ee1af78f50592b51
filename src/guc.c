/*-------------------------------------------------------------------------
 *
 * guc.c
 *	  The extension's settings.
 *
 * leader_election.fence is defined here too, so that all settings exist
 * before the prefix is reserved; its grammar and its value are setting.c's.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "miscadmin.h"
#include "utils/guc.h"

#include "guc.h"
#include "leader_election.h"
#include "setting.h"

#define DEFAULT_TTL_MS			15000
#define DEFAULT_COMMIT_TIMEOUT	5000
#define MAX_COMMIT_TIMEOUT		(3600 * 1000)
#define DEFAULT_MAX_ELECTIONS	10000
#define DEFAULT_MAX_LEASES		10000
#define LIMIT_MAX_LEASES		1000000

int			le_default_ttl_ms = DEFAULT_TTL_MS;
bool		le_enforce = true;
int			le_commit_timeout_ms = DEFAULT_COMMIT_TIMEOUT;
int			le_max_elections = DEFAULT_MAX_ELECTIONS;
int			le_max_leases = DEFAULT_MAX_LEASES;
bool		le_history = true;
bool		le_notify = true;
bool		le_require_sync_standby = false;

static char *fence_text = NULL;

void
le_guc_init(void)
{
	DefineCustomIntVariable("leader_election.default_ttl",
							"Length of a lease for which no TTL is given.",
							NULL,
							&le_default_ttl_ms,
							DEFAULT_TTL_MS,
							LE_TTL_MIN / LE_MS, LE_TTL_MAX / LE_MS,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);

	DefineCustomStringVariable("leader_election.fence",
							   "Fencing tokens presented by this session.",
							   "A list of election=epoch, separated by commas.",
							   &fence_text, "",
							   PGC_USERSET, 0,
							   le_setting_check, le_setting_assign, NULL);

	DefineCustomBoolVariable("leader_election.enforce",
							 "Refuses writes to protected tables without a current token.",
							 "Turn it off for maintenance only.",
							 &le_enforce, true,
							 PGC_SUSET, 0, NULL, NULL, NULL);

	DefineCustomIntVariable("leader_election.commit_timeout",
							"Longest wait of a fenced commit for an election that is changing hands.",
							NULL,
							&le_commit_timeout_ms,
							DEFAULT_COMMIT_TIMEOUT, 1, MAX_COMMIT_TIMEOUT,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);

	DefineCustomIntVariable("leader_election.max_elections",
							"Number of elections that a database may have.",
							NULL,
							&le_max_elections,
							DEFAULT_MAX_ELECTIONS, 0, INT_MAX,
							PGC_SUSET, 0, NULL, NULL, NULL);

	/*
	 * The memory is made once.  A preloaded library makes it at server start,
	 * another at first use, with what the configuration says then.
	 */
	DefineCustomIntVariable("leader_election.max_leases",
							"Number of live leases for which the server has room.",
							NULL,
							&le_max_leases,
							DEFAULT_MAX_LEASES, 1, LIMIT_MAX_LEASES,
							process_shared_preload_libraries_in_progress ?
							PGC_POSTMASTER : PGC_SIGHUP,
							0, NULL, NULL, NULL);

	DefineCustomBoolVariable("leader_election.history",
							 "Keeps a row for every term that has ended.",
							 NULL,
							 &le_history, true,
							 PGC_SUSET, 0, NULL, NULL, NULL);

	DefineCustomBoolVariable("leader_election.notify",
							 "Notifies channel leader_election when a term begins or ends.",
							 NULL,
							 &le_notify, true,
							 PGC_SUSET, 0, NULL, NULL, NULL);

	DefineCustomBoolVariable("leader_election.require_sync_standby",
							 "Grants no leadership while no synchronous standby is configured.",
							 NULL,
							 &le_require_sync_standby, false,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);

	MarkGUCPrefixReserved("leader_election");
}
