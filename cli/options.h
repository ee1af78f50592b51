/*-------------------------------------------------------------------------
 *
 * options.h
 *	  The command line.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEADERCTL_OPTIONS_H
#define LEADERCTL_OPTIONS_H

#include "run.h"
#include "target.h"

typedef enum
{
	ACTION_RUN,
	ACTION_STATUS,
	ACTION_WATCH,
	ACTION_HISTORY,
	ACTION_DEPOSE,
	ACTION_PAUSE,
	ACTION_RESUME
} Action;

typedef struct Options
{
	Action		action;
	TargetOptions target;
	const char *election;		/* or NULL */
	bool		json;
	const char *lines;			/* the last ones only, or NULL */
	RunOptions	run;
} Options;

extern void options_parse(Options *options, int argc, char **argv);

#endif							/* LEADERCTL_OPTIONS_H */
