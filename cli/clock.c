/*-------------------------------------------------------------------------
 *
 * clock.c
 *	  The time that leases are measured in.
 *
 * CLOCK_BOOTTIME goes on while the machine is suspended, as the server's clock
 * does elsewhere.  A wait must be measured by it too: the timeout of poll() is
 * not, and would go on after a night's sleep for what was left of it before.
 * Hence the timers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <sys/random.h>
#include <sys/timerfd.h>
#include <time.h>

#include "clock.h"
#include "report.h"

int64
clock_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return now.tv_sec * CLOCK_SECOND + now.tv_nsec / 1000;
}

int64
clock_earlier(int64 a, int64 b)
{
	return a < b ? a : b;
}

int64
clock_later(int64 a, int64 b)
{
	return a > b ? a : b;
}

int64
clock_within(int64 value, int64 least, int64 most)
{
	return clock_earlier(clock_later(value, least), most);
}

/* What nobody else will draw */
uint64
random_number(void)
{
	uint64		number;

	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		fail("could not get random bytes: %m");
	return number;
}

/* Between half and all of it, so that many clients do not keep in step */
int64
clock_jittered(int64 duration)
{
	static bool seeded = false;

	if (!seeded)
		srand48(random_number());
	seeded = true;
	return duration / 2 + (int64) (drand48() * (duration / 2));
}

int
timer_open(void)
{
	int			timer = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);

	if (timer < 0)
		fail("could not create a timer: %m");
	return timer;
}

/* A time that has passed makes it readable at once; CLOCK_NEVER disarms it. */
void
timer_arm(int timer, int64 at)
{
	struct itimerspec when = {0};

	if (at != CLOCK_NEVER)
	{
		/* Zero would disarm it. */
		at = clock_later(at, 1);
		when.it_value.tv_sec = at / CLOCK_SECOND;
		when.it_value.tv_nsec = at % CLOCK_SECOND * 1000;
	}
	timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
}
