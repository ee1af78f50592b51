/*-------------------------------------------------------------------------
 *
 * rights.c
 *	  Who may do what, and where it can be done at all.
 *
 * The owner of an election is kept by name, so that a dump can be restored
 * where role OIDs differ.  A name that no longer exists leaves the election
 * to superusers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "utils/acl.h"

#include "rights.h"

bool
le_rights_has_role(Oid role, const char *owner)
{
	Oid			owning = get_role_oid(owner, true);

	return OidIsValid(owning) ? has_privs_of_role(role, owning) :
		superuser_arg(role);
}

bool
le_rights_has(const char *owner)
{
	return le_rights_has_role(GetUserId(), owner);
}

bool
le_rights_may_see(const char *owner)
{
	return le_rights_has(owner) ||
		has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
}

void
le_rights_require(const char *owner, const char *election)
{
	if (!le_rights_has(owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for election \"%s\"", election),
				 errdetail("The current user is not a member of the role that owns the election.")));
}

void
le_rights_require_create(Oid counter, const char *election)
{
	if (pg_class_aclcheck(counter, GetUserId(), ACL_USAGE) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to create election \"%s\"", election),
				 errdetail("The election does not exist, and creating one needs USAGE on sequence leader_election_epoch.")));
}

void
le_require_primary(void)
{
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("leadership cannot be decided on a standby server"),
				 errhint("Connect to the primary; target_session_attrs=read-write finds it.")));
}
