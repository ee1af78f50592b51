/*-------------------------------------------------------------------------
 *
 * watch.h
 *	  leaderctl watch: changes of leadership as they come.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEADERCTL_WATCH_H
#define LEADERCTL_WATCH_H

#include "options.h"
#include "target.h"

extern int	watch(const Options *options, Target *target);

#endif							/* LEADERCTL_WATCH_H */
