/*-------------------------------------------------------------------------
 *
 * descendants.h
 *	  The processes below this one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEADERCTL_DESCENDANTS_H
#define LEADERCTL_DESCENDANTS_H

extern void descendants_spare_present(void);
extern int	descendants_kill(void);
extern int	descendants_count(void);

#endif							/* LEADERCTL_DESCENDANTS_H */
