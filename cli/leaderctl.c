/*-------------------------------------------------------------------------
 *
 * leaderctl.c
 *	  The command-line client of leader_election.
 *
 * It speaks nothing but the SQL interface.  "run" is two processes: one speaks with
 * the database (run.c, campaign.c), the other one keeps the command (keeper.c).
 * Everything else asks a question and prints the answer.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <unistd.h>

#include "options.h"
#include "report.h"
#include "run.h"
#include "show.h"
#include "steer.h"
#include "watch.h"

/* Else a socket of ours could become what somebody writes messages to. */
static void
open_standard_files(void)
{
	int			fd;

	do
	{
		fd = open("/dev/null", O_RDWR);
	} while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

int
main(int argc, char **argv)
{
	Options		options = {0};
	Target		target;

	open_standard_files();
	options_parse(&options, argc, argv);
	switch (options.action)
	{
		case ACTION_STATUS:
			target_make(&target, &options.target, false);
			return show_status(&options, &target);
		case ACTION_HISTORY:
			target_make(&target, &options.target, false);
			return show_history(&options, &target);
		case ACTION_WATCH:
			target_make(&target, &options.target, false);
			return watch(&options, &target);
		case ACTION_DEPOSE:
			target_make(&target, &options.target, true);
			return steer_depose(&options, &target);
		case ACTION_PAUSE:
		case ACTION_RESUME:
			target_make(&target, &options.target, true);
			return steer_pause(&options, &target);
		case ACTION_RUN:
			target_make(&target, &options.target, true);
			return run_command(&options.run, &target);
	}
	return EXIT_FAILED;
}
