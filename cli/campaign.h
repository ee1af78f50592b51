/*-------------------------------------------------------------------------
 *
 * campaign.h
 *	  The side of "leaderctl run" that speaks with the database.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEADERCTL_CAMPAIGN_H
#define LEADERCTL_CAMPAIGN_H

#include "run.h"

extern void campaign_begin(Run *run, int64 pause);
extern bool campaign_keeps_lease(const Run *run);
extern void campaign_act(Run *run);
extern void campaign_process(Run *run, short revents);
extern int64 campaign_next(const Run *run);

#endif							/* LEADERCTL_CAMPAIGN_H */
