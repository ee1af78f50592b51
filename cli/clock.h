/*-------------------------------------------------------------------------
 *
 * clock.h
 *	  The time that leases are measured in.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEADERCTL_CLOCK_H
#define LEADERCTL_CLOCK_H

/* Times and durations are in microseconds. */
#define CLOCK_MS		INT64_C(1000)
#define CLOCK_SECOND	INT64_C(1000000)
#define CLOCK_NEVER		INT64_MAX

extern int64 clock_now(void);
extern int64 clock_earlier(int64 a, int64 b);
extern int64 clock_later(int64 a, int64 b);
extern int64 clock_within(int64 value, int64 least, int64 most);
extern int64 clock_jittered(int64 duration);
extern uint64 random_number(void);

/* A descriptor that becomes readable at a time */
extern int	timer_open(void);
extern void timer_arm(int timer, int64 at);

#endif							/* LEADERCTL_CLOCK_H */
