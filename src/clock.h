/*-------------------------------------------------------------------------
 *
 * clock.h
 *	  The one clock by which leases are measured, and intervals.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_CLOCK_H
#define LE_CLOCK_H

#include "datatype/timestamp.h"

/* Now, in microseconds of the server's monotonic clock; never below 1. */
extern int64 le_clock_now(void);

/* The wall clock's time since 2020-01-01 00:00 UTC; 0 if it is before. */
extern int64 le_clock_since_2020(void);

/*
 * The length of an interval in microseconds, which must lie from min to max
 * and have no months; otherwise an error (22023) that calls it by "what".
 */
extern int64 le_interval_to_us(const Interval *interval, int64 min, int64 max,
							   const char *what);

/* A new interval of that many microseconds, in the current context. */
extern Interval *le_us_to_interval(int64 us);

/* The deadline of what does not end by time, and what is left of it */
#define LE_FOREVER			PG_INT64_MAX

/* What is left until a deadline, at least 0; LE_FOREVER if there is none. */
extern int64 le_clock_left(int64 deadline, int64 now);

/* Milliseconds until a point in time, rounded up and at least 0. */
extern long le_clock_ms_until(int64 when);

#endif							/* LE_CLOCK_H */
