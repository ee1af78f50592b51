/*-------------------------------------------------------------------------
 *
 * command.h
 *	  The program that is run while we lead.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEADERCTL_COMMAND_H
#define LEADERCTL_COMMAND_H

#include <signal.h>
#include <sys/types.h>

/* How we were started, which the command is to find again */
typedef struct Inheritance
{
	sigset_t	mask;
	struct sigaction actions[NSIG];
	bool		has_terminal;	/* we are in the foreground of one */
	pid_t		group;
} Inheritance;

typedef struct Command
{
	char	  **argv;
	const char *notify_socket;	/* where it says that it is alive, or NULL */
	int64		watchdog;		/* how often it has to */
} Command;

/* What it is told about its leadership */
typedef struct Leadership
{
	const char *election;
	const char *holder;
	int64		epoch;
} Leadership;

extern void inheritance_note(Inheritance *inheritance);
extern pid_t command_fork(const Command *command, const Inheritance *inheritance,
						  const Leadership *leadership, int *go, int *failure);
extern int	command_failure(int failure);
extern void terminal_take_back(const Inheritance *inheritance, pid_t from);

#endif							/* LEADERCTL_COMMAND_H */
