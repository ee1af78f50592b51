/*-------------------------------------------------------------------------
 *
 * setting.h
 *	  The setting leader_election.fence: tokens that a session presents.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_SETTING_H
#define LE_SETTING_H

#include "utils/guc.h"

extern bool le_setting_check(char **newval, void **extra, GucSource source);
extern void le_setting_assign(const char *newval, void *extra);

/* The epoch that the setting presents for an election; 0 if it has none. */
extern int64 le_setting_epoch(const char *election);

#endif							/* LE_SETTING_H */
