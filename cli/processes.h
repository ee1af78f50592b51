/*-------------------------------------------------------------------------
 *
 * processes.h
 *	  The processes below this one, and those of a group.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEADERCTL_PROCESSES_H
#define LEADERCTL_PROCESSES_H

#include <sys/types.h>

extern void descendants_spare_present(void);
extern int	descendants_kill(void);
extern int	descendants_count(void);
extern bool group_lives(pid_t group);
extern bool process_is_stopped(pid_t pid);

#endif							/* LEADERCTL_PROCESSES_H */
