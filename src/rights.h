/*-------------------------------------------------------------------------
 *
 * rights.h
 *	  Who may do what, and where it can be done at all.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_RIGHTS_H
#define LE_RIGHTS_H

/* May the current user act for an election of that owner? */
extern bool le_rights_has(const char *owner);

/* May that role, whoever the current user is? */
extern bool le_rights_has_role(Oid role, const char *owner);

/* May it see more of that election than its name? */
extern bool le_rights_may_see(const char *owner);

/* Error 42501 if it has not. */
extern void le_rights_require(const char *owner, const char *election);

/* Error 42501 if the current user may not create elections. */
extern void le_rights_require_create(Oid counter, const char *election);

/* Error 25006 during recovery. */
extern void le_require_primary(void);

#endif							/* LE_RIGHTS_H */
