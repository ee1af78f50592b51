/*-------------------------------------------------------------------------
 *
 * clock.c
 *	  The one clock by which leases are measured, and intervals.
 *
 * CLOCK_MONOTONIC is the same for all processes of a host, and neither a step
 * of the wall clock nor a frozen now() touches it.  Whoever decides on a lease
 * reads it after the lock under which he decides was granted: a reading from
 * before a wait is from the past.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "common/int.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "leader_election.h"

/* 2020-01-01 as seconds after PostgreSQL's own epoch, 2000-01-01 */
#define SECONDS_TO_2020		(INT64CONST(7305) * 86400)

int64
le_clock_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64) now.tv_sec * LE_SECOND + now.tv_nsec / 1000 + 1;
}

int64
le_clock_since_2020(void)
{
	int64		us = GetCurrentTimestamp() - SECONDS_TO_2020 * USECS_PER_SEC;

	return Max(us, 0);
}

int64
le_interval_to_us(const Interval *interval, int64 min, int64 max,
				  const char *what)
{
	int64		us = 0;
	bool		valid;

	/* Infinite intervals have all months there are. */
	valid = interval->month == 0 &&
		!pg_mul_s64_overflow(interval->day, USECS_PER_DAY, &us) &&
		!pg_add_s64_overflow(us, interval->time, &us) &&
		us >= min && us <= max;

	if (!valid)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is out of range", what),
				 interval->month != 0 ?
				 errdetail("An interval with months has no fixed length.") :
				 errdetail("It must be from %.10g to %.10g seconds.",
						   (double) min / LE_SECOND,
						   (double) max / LE_SECOND)));
	return us;
}

Interval *
le_us_to_interval(int64 us)
{
	Interval   *interval = (Interval *) palloc0(sizeof(Interval));

	interval->time = us;
	return interval;
}

int64
le_clock_left(int64 deadline, int64 now)
{
	return deadline == LE_FOREVER ? LE_FOREVER : Max(deadline - now, 0);
}

long
le_clock_ms_until(int64 when)
{
	int64		left = when - le_clock_now();

	return left <= 0 ? 0 : (long) ((left + LE_MS - 1) / LE_MS);
}
