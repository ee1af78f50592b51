/*-------------------------------------------------------------------------
 *
 * keeper.h
 *	  The process that runs the command and ends it in time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEADERCTL_KEEPER_H
#define LEADERCTL_KEEPER_H

#include <sys/types.h>

#include "command.h"
#include "questions.h"
#include "target.h"

typedef enum
{
	ORDER_START,				/* the command, under "epoch" */
	ORDER_EXTEND,				/* the lease lasts longer */
	ORDER_SIGNAL,				/* send "signal" to the command */
	ORDER_STEP_DOWN,			/* end the command, there is time until
								 * "kill_at" */
	ORDER_DISMISS				/* there is nothing to give back; exit */
} OrderKind;

typedef struct Order
{
	OrderKind	kind;
	int			signal;
	int64		epoch;
	int64		term_at;		/* the command is told to end */
	int64		kill_at;		/* the command is killed */
} Order;

typedef enum
{
	NEWS_STARTED,				/* "pid" is the command's, and its group's */
	NEWS_STEPPING_DOWN,			/* the command is told to end: time is up */
	NEWS_NOT_STARTED,			/* "status" is an errno */
	NEWS_ENDED,					/* "status" is the command's, as wait() tells
								 * it */
	NEWS_GONE					/* its group too; "left" processes have left
								 * that */
} NewsKind;

typedef struct News
{
	NewsKind	kind;
	pid_t		pid;
	int			status;
	int			left;
} News;

typedef struct Keeper
{
	pid_t		pid;
	int			socket;			/* packets: orders there, news back */
} Keeper;

extern void keeper_start(Keeper *keeper, const Command *command,
						 const Inheritance *inheritance,
						 const Candidacy *candidacy, Target *target);
extern bool keeper_order(const Keeper *keeper, const Order *order);
extern bool keeper_news(const Keeper *keeper, News *news, bool *lost);

#endif							/* LEADERCTL_KEEPER_H */
