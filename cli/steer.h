/*-------------------------------------------------------------------------
 *
 * steer.h
 *	  leaderctl depose, pause and resume.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEADERCTL_STEER_H
#define LEADERCTL_STEER_H

#include "options.h"
#include "target.h"

extern int	steer_depose(const Options *options, Target *target);
extern int	steer_pause(const Options *options, Target *target);

#endif							/* LEADERCTL_STEER_H */
