/*-------------------------------------------------------------------------
 *
 * report.c
 *	  What leaderctl says of itself: one line on stderr for each message, for
 *	  people or as JSON, in one write so that lines of two processes that share
 *	  a file do not mix.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "libpq-fe.h"
#include "json.h"
#include "report.h"

/* How long a message may wait for its reader before it is dropped */
#define WRITE_MS	100

static const char *about;
static int64 current_epoch;
static bool quiet;
static bool as_json;

static const char *const level_names[] = {"info", "warning", "error"};

/* The election that all later messages are about */
void
report_about(const char *election)
{
	about = election;
}

/* The epoch of the current term, which messages in JSON carry; 0 for none */
void
report_epoch(int64 epoch)
{
	current_epoch = epoch;
}

/* Warnings and errors only */
void
report_quiet(void)
{
	quiet = true;
}

void
report_as_json(void)
{
	as_json = true;
}

/* What the server says may have several lines: join them. */
static void
join_lines(char *words)
{
	char	   *to = words;

	for (char *from = words; *from; from++)
	{
		if (*from != '\n')
			*to++ = *from;
		else
		{
			while (from[1] == '\n' || from[1] == ' ' || from[1] == '\t')
				from++;
			if (from[1])
				*to++ = ' ';
		}
	}
	*to = '\0';
}

/* Now, in UTC */
void
append_time(PQExpBuffer buffer)
{
	struct timespec now;
	struct tm	utc;
	char		time[32];

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &utc);
	strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", &utc);
	appendPQExpBuffer(buffer, "%s.%03ldZ", time, now.tv_nsec / 1000000);
}

static void
append_json_line(PQExpBuffer line, ReportLevel level, const char *event,
				 const char *message)
{
	appendPQExpBufferStr(line, "{\"time\": \"");
	append_time(line);
	appendPQExpBuffer(line, "\", \"level\": \"%s\", \"event\": \"%s\"",
					  level_names[level], event);
	if (about)
	{
		appendPQExpBufferStr(line, ", \"election\": ");
		append_json_words(line, about);
	}
	if (current_epoch != 0)
		appendPQExpBuffer(line, ", \"epoch\": %lld", (long long) current_epoch);
	appendPQExpBufferStr(line, ", \"message\": ");
	append_json_words(line, message);
	appendPQExpBufferStr(line, "}\n");
}

static void
write_line(ReportLevel level, const char *event, const char *message)
{
	struct pollfd ready = {.fd = STDERR_FILENO,.events = POLLOUT};
	PQExpBufferData line;

	initPQExpBuffer(&line);
	if (as_json)
		append_json_line(&line, level, event, message);
	else
	{
		appendPQExpBufferStr(&line, "leaderctl: ");
		if (about)
			appendPQExpBuffer(&line, "%s: ", about);
		if (level != REPORT_INFO)
			appendPQExpBuffer(&line, "%s: ", level_names[level]);
		appendPQExpBuffer(&line, "%s\n", message);
	}

	/* Nobody may be there to read it, or not now, which is no reason to stop. */
	if (poll(&ready, 1, WRITE_MS) != 0)
	{
		while (write(STDERR_FILENO, line.data, line.len) < 0 && errno == EINTR)
			 /* again */ ;
	}
	termPQExpBuffer(&line);
}

static void vreport(ReportLevel level, const char *event, const char *format, va_list args)
			pg_attribute_printf(3, 0);

static void
vreport(ReportLevel level, const char *event, const char *format, va_list args)
{
	char	   *message;

	if (vasprintf(&message, format, args) < 0)
		return;
	join_lines(message);
	write_line(level, event, message);
	free(message);
}

void
report(ReportLevel level, const char *event, const char *format,...)
{
	int			saved_errno = errno;
	va_list		args;

	if (quiet && level == REPORT_INFO)
		return;
	va_start(args, format);
	errno = saved_errno;
	vreport(level, event, format, args);
	va_end(args);
}

/* What was printed and cannot be written was not printed. */
void
finish_output(void)
{
	if (fflush(stdout) != 0 || ferror(stdout))
		fail("could not write: %m");
}

/* For what cannot go on and has nothing to give back */
void
fail(const char *format,...)
{
	int			saved_errno = errno;
	va_list		args;

	va_start(args, format);
	errno = saved_errno;
	vreport(REPORT_ERROR, "failed", format, args);
	va_end(args);
	exit(EXIT_FAILED);
}
