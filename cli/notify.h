/*-------------------------------------------------------------------------
 *
 * notify.h
 *	  The protocol of sd_notify, to a supervisor and from the command.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEADERCTL_NOTIFY_H
#define LEADERCTL_NOTIFY_H

extern int	notify_listen(char **address);
extern bool notify_heard(int socket);

extern void notify_supervisor(const char *format,...)
			pg_attribute_printf(1, 2);
extern int64 notify_supervisor_interval(void);

#endif							/* LEADERCTL_NOTIFY_H */
