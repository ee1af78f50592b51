/*-------------------------------------------------------------------------
 *
 * show.h
 *	  leaderctl status and history.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEADERCTL_SHOW_H
#define LEADERCTL_SHOW_H

#include "options.h"
#include "target.h"

extern int	show_status(const Options *options, Target *target);
extern int	show_history(const Options *options, Target *target);

#endif							/* LEADERCTL_SHOW_H */
