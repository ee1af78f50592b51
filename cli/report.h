/*-------------------------------------------------------------------------
 *
 * report.h
 *	  What leaderctl says of itself.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEADERCTL_REPORT_H
#define LEADERCTL_REPORT_H

#include "pqexpbuffer.h"

/* Exit codes; a command's own are passed on, 128 + n for signal n. */
#define EXIT_LOST			123
#define EXIT_NOT_LEADER		124
#define EXIT_FAILED			125
#define EXIT_NOT_EXECUTABLE	126
#define EXIT_NOT_FOUND		127

typedef enum
{
	REPORT_INFO,
	REPORT_WARNING,
	REPORT_ERROR
} ReportLevel;

extern void report_about(const char *election);
extern void report_epoch(int64 epoch);
extern void report_quiet(void);
extern void report_as_json(void);
extern void report(ReportLevel level, const char *event, const char *format,...)
			pg_attribute_printf(3, 4);
extern void append_time(PQExpBuffer buffer);
extern void finish_output(void);
extern void fail(const char *format,...)
			pg_attribute_printf(1, 2) __attribute__((noreturn));

#endif							/* LEADERCTL_REPORT_H */
