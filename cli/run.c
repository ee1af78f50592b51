/*-------------------------------------------------------------------------
 *
 * run.c
 *	  leaderctl run: a command that runs while we lead.
 *
 * One loop waits for the database, the process that keeps the command, signals,
 * the command's signs of life, and the clock.  After every wait the clock comes
 * first: what has run out while we were stopped is dealt with before anything
 * that has arrived meanwhile is believed.
 *
 * The phases follow each other as Phase lists them, and after the last but one the
 * first comes again if leadership was lost.  The lease is given back only after
 * the keeper has said that the command and its group are gone.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "campaign.h"
#include "clock.h"
#include "notify.h"
#include "processes.h"
#include "report.h"

#define GUESSED_TTL			(15 * CLOCK_SECOND)
#define ENDING_LOOK			(20 * CLOCK_MS)
#define KEEPER_PATIENCE		CLOCK_SECOND
#define STOP_AGAIN			(500 * CLOCK_MS)
#define DISMISS_MS			1000

/* Those that end us; the others are for the command, while there is one. */
static const struct
{
	int			number;
	bool		stops;
	bool		stops_candidate;
}			handled[] = {
	{SIGTERM, true, true},
	{SIGINT, true, true},
	{SIGQUIT, true, true},
	{SIGHUP, false, true},
	{SIGUSR1, false, false},
	{SIGUSR2, false, false},
};

/*--------------------------------------------------------------------------
 * The command
 *--------------------------------------------------------------------------
 */

static void
give_order(Run *run, OrderKind kind, int number, int64 kill_at)
{
	Order		order = {
		.kind = kind,
		.signal = number,
		.epoch = run->epoch,
		.term_at = run->term_at,
		.kill_at = kill_at
	};

	/* If it is gone, that is noticed where news are read. */
	keeper_order(&run->keeper, &order);
}

/* We lead, and there is time. */
void
run_start_command(Run *run)
{
	report_epoch(run->epoch);
	report(REPORT_INFO, "leader", "leader with epoch %lld", (long long) run->epoch);
	notify_supervisor("STATUS=leader of \"%s\" with epoch %lld", run->candidacy.election,
					  (long long) run->epoch);
	free(run->leader);
	run->leader = NULL;
	if (run->notify >= 0)
		notify_heard(run->notify);	/* what an earlier command has left */
	run->silent_at = CLOCK_NEVER;
	run->kill_command_at = CLOCK_NEVER;
	run->overdue_since = CLOCK_NEVER;
	run->phase = PHASE_LEADING;
	give_order(run, ORDER_START, 0, run->kill_at);
}

/*
 * Ends the command for a reason that is not its own.  It has until "kill_at", but
 * not longer than the lease allows.
 */
void
run_lose(Run *run, Reason reason, int64 kill_at, const char *format,...)
{
	char	   *words;
	va_list		args;

	if (!campaign_keeps_lease(run))
		return;
	va_start(args, format);
	if (vasprintf(&words, format, args) >= 0)
	{
		report(REPORT_WARNING, reason == REASON_WATCHDOG ? "silent" : "lost", "%s", words);
		free(words);
	}
	va_end(args);

	run->phase = PHASE_ENDING;

	/* Who was told to end does not begin again. */
	if (run->reason == REASON_NONE)
		run->reason = reason;
	run->kill_at = clock_earlier(run->kill_at, kill_at);
	give_order(run, ORDER_STEP_DOWN, 0, run->kill_at);
}

/* Gives back what we may hold; there is no command. */
void
run_release(Run *run)
{
	int64		now = clock_now();

	run->phase = PHASE_RELEASING;
	run->ask_at = now;
	run->reconnect_at = clock_earlier(run->reconnect_at, now);
	if (run->epoch != 0)
		run_release_known(run);
	else
		run->release_until = BID_TIME +
			(run->asking && run->question == QUESTION_BID ? run->connection.deadline : now);
	run_check_held(run);
}

/* It is known what we hold, maybe only since we want to give it back. */
void
run_release_known(Run *run)
{
	int64		now = clock_now();

	run->release_until = clock_earlier(run->lease_end, now + RELEASE_TIME);
	run->ask_at = now;
}

/* There may be nothing to give back, maybe only since somebody else has won. */
void
run_check_held(Run *run)
{
	if (run->phase == PHASE_RELEASING && !run->may_hold)
		run_finish(run);
}

static void
stand_again(Run *run)
{
	/*
	 * If this one hangs then another candidate's command may be in a better
	 * state.
	 */
	campaign_begin(run, run->reason == REASON_WATCHDOG ? run->ttl / 3 : 0);
	if (run->options->timeout > 0)
		run->timeout_at = clock_now() + run->options->timeout;
}

/* Nothing is held any more: the reason says what comes next. */
void
run_finish(Run *run)
{
	run->epoch = 0;
	report_epoch(0);
	run->phase = PHASE_OVER;
	switch (run->reason)
	{
		case REASON_NONE:
			campaign_begin(run, 0);
			break;
		case REASON_LATE:
			campaign_begin(run, run->ttl / 3);
			break;
		case REASON_LOST:
		case REASON_WATCHDOG:
			if (run->options->exit_on_loss)
				run->exit_code = EXIT_LOST;
			else
				stand_again(run);
			break;
		case REASON_TIMEOUT:
			run->exit_code = EXIT_NOT_LEADER;
			break;
		default:
			break;
	}

	/* Nobody would start a command. */
	if (run->phase == PHASE_CAMPAIGNING && run->keeper_lost)
	{
		run->phase = PHASE_OVER;
		run->exit_code = EXIT_FAILED;
	}
}

static void
command_gone(Run *run, int left)
{
	if (run->keeper_lost)
		terminal_take_back(&run->inheritance, run->command);
	run->command = 0;
	if (left > 0)
		report(REPORT_WARNING, "left", left == 1 ?
			   "%d process that the command has started left its process group and still runs" :
			   "%d processes that the command has started left its process group and still run", left);
	run_release(run);
}

static void
command_ended(Run *run, int code)
{
	run->phase = PHASE_ENDING;
	if (run->reason == REASON_NONE)
		run->reason = REASON_COMMAND;
	run->exit_code = code;
}

static void
command_not_started(Run *run, int error)
{
	report(REPORT_ERROR, "not_started", "could not execute \"%s\": %s",
		   run->options->command[0], strerror(error));
	command_ended(run, error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);

	/* It would not be found the next time either. */
	if (run->reason != REASON_SIGNAL)
		run->reason = REASON_COMMAND;
}

/* The command is alive, or has begun, or gets another chance. */
static void
expect_sign_of_life(Run *run)
{
	if (run->options->watchdog > 0)
		run->silent_at = clock_now() + run->options->watchdog;
}

static void
process_news(Run *run, const News *news)
{
	switch (news->kind)
	{
		case NEWS_STARTED:
			run->command = news->pid;
			expect_sign_of_life(run);
			break;
		case NEWS_STEPPING_DOWN:
			run_lose(run, REASON_LOST, run->kill_at, "leadership lost: the lease was not renewed in time");
			break;
		case NEWS_NOT_STARTED:
			command_not_started(run, news->status);
			break;
		case NEWS_ENDED:
			command_ended(run, WIFSIGNALED(news->status) ?
						  128 + WTERMSIG(news->status) : WEXITSTATUS(news->status));
			break;
		case NEWS_GONE:
			command_gone(run, news->left);
			break;
	}
}

static void
read_news(Run *run)
{
	bool		lost = false;
	News		news;

	if (run->keeper_lost)
		return;
	while (keeper_news(&run->keeper, &news, &lost))
		process_news(run, &news);
	if (!lost)
		return;
	run->keeper_lost = true;
	report(REPORT_ERROR, "failed", "the guard, leaderctl-guard, was killed");

	/* What is given back already was given back for another reason. */
	if (run->phase == PHASE_RELEASING)
		return;
	run->reason = REASON_FAILED;
	run->exit_code = EXIT_FAILED;
	if (campaign_keeps_lease(run))
		run->phase = PHASE_ENDING;
	else if (run->phase == PHASE_CAMPAIGNING)
		run_release(run);
}

/*--------------------------------------------------------------------------
 * Signals
 *--------------------------------------------------------------------------
 */

/* The lease is not kept for it any longer. */
static void
kill_command(Run *run)
{
	run->phase = PHASE_ENDING;
	run->kill_at = clock_earlier(run->kill_at, clock_now());
	give_order(run, ORDER_SIGNAL, SIGKILL, run->kill_at);
}

static void
stop_command(Run *run, int number)
{
	report(REPORT_INFO, "stopping", "stopping the command: %s", strsignal(number));
	notify_supervisor("STOPPING=1");
	run->phase = PHASE_STOPPING;
	if (run->options->kill_after > 0)
		run->kill_command_at = run->stopped_at + run->options->kill_after;
	give_order(run, ORDER_SIGNAL, number, run->kill_at);
}

/* A second signal is more than a request, unless one sender has sent both. */
static void
stop(Run *run, int number)
{
	int64		now = clock_now();
	bool		again = run->stopped_at != CLOCK_NEVER && now >= run->stopped_at + STOP_AGAIN;

	run->stopped_at = clock_earlier(run->stopped_at, now);
	if (run->reason != REASON_COMMAND && run->reason != REASON_FAILED)
		run->reason = REASON_SIGNAL;
	switch (run->phase)
	{
		case PHASE_CAMPAIGNING:
			run->exit_code = 128 + number;
			run_release(run);
			break;
		case PHASE_LEADING:
			stop_command(run, number);
			break;
		case PHASE_STOPPING:
		case PHASE_ENDING:
			if (again)
				kill_command(run);
			break;
		case PHASE_RELEASING:
			if (run->reason == REASON_SIGNAL && run->exit_code == 0)
				run->exit_code = 128 + number;

			/* The keeper goes on trying. */
			if (again)
				exit(run->exit_code);
			break;
		case PHASE_OVER:
			break;
	}
}

static void
handle_signal(Run *run, int number)
{
	bool		command = run->phase == PHASE_LEADING || run->phase == PHASE_STOPPING ||
		run->phase == PHASE_ENDING;

	for (size_t i = 0; i < lengthof(handled); i++)
	{
		if (handled[i].number != number)
			continue;
		if (handled[i].stops || (handled[i].stops_candidate && !command))
			stop(run, number);
		else if (command)
			give_order(run, ORDER_SIGNAL, number, run->kill_at);
	}
}

void
run_read_signals(Run *run)
{
	struct signalfd_siginfo info;

	while (read(run->signals, &info, sizeof(info)) == sizeof(info))
	{
		if (info.ssi_signo != SIGCHLD)
			handle_signal(run, info.ssi_signo);

		/* Our keeper's end is seen by its socket. */
		while (info.ssi_signo == SIGCHLD && waitpid(-1, NULL, WNOHANG) > 0)
			 /* next */ ;
	}
}

/* Signals that were ignored when we were started stay so. */
static void
open_signals(Run *run)
{
	sigset_t	set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	for (size_t i = 0; i < lengthof(handled); i++)
	{
		if (run->inheritance.actions[handled[i].number].sa_handler != SIG_IGN)
			sigaddset(&set, handled[i].number);
	}
	signal(SIGCHLD, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);

	/* While the command has the terminal, we speak from the background. */
	signal(SIGTTOU, SIG_IGN);
	sigprocmask(SIG_BLOCK, &set, NULL);
	run->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	if (run->signals < 0)
		fail("could not create a descriptor for signals: %m");
}

/*--------------------------------------------------------------------------
 * Time
 *--------------------------------------------------------------------------
 */

/*
 * If the command ought to be dead, and the keeper has not said so, then that is
 * stopped, or gone, and its children are ours now.
 */
static void
kill_unkept_command(Run *run)
{
	int64		now = clock_now();

	if (run->phase != PHASE_ENDING || (!run->keeper_lost && now < run->kill_at))
		return;

	/* We may both have been stopped, and it is only about to go on. */
	run->overdue_since = clock_earlier(run->overdue_since, now);
	if (!run->keeper_lost && now >= run->overdue_since + KEEPER_PATIENCE &&
		process_is_stopped(run->keeper.pid))
		kill(run->keeper.pid, SIGKILL);
	if (run->command > 0)
		kill(-run->command, SIGKILL);
	if (run->keeper_lost && descendants_kill() == 0 &&
		(run->command == 0 || !group_lives(run->command)))
		command_gone(run, 0);
}

static void
hear_command(Run *run)
{
	if (run->notify >= 0 && notify_heard(run->notify) && run->phase == PHASE_LEADING)
		expect_sign_of_life(run);
}

/* If we come late then we were stopped, and the command perhaps with us. */
static void
check_silence(Run *run, int64 now)
{
	if (now - run->silent_at > run->options->watchdog / 2)
		expect_sign_of_life(run);
	else
		run_lose(run, REASON_WATCHDOG, run->kill_at, "the command has not said that it is alive for %lld ms",
				 (long long) (run->options->watchdog / CLOCK_MS));
}

static void
give_up_release(Run *run, int64 now)
{
	if (run->epoch == 0)
		report(REPORT_WARNING, "not_released",
			   "a bid was not answered; if it is granted, the lease will end by itself");
	else if (now < run->lease_end)
		report(REPORT_WARNING, "not_released",
			   "the lease could not be released; it ends by itself");
	run->may_hold = false;
	run_finish(run);
}

/* Whatever has run out, whoever else should have noticed */
static void
check_clock(Run *run)
{
	int64		now = clock_now();

	if (campaign_keeps_lease(run) && now >= run->term_at)
		run_lose(run, REASON_LOST, run->kill_at, "leadership lost: the lease was not renewed in time");
	if (run->phase == PHASE_LEADING && now >= run->silent_at)
		check_silence(run, now);
	if (run->phase == PHASE_STOPPING && now >= run->kill_command_at)
		kill_command(run);
	if (run->phase == PHASE_RELEASING && now >= run->release_until)
		give_up_release(run, now);
	if (run->phase == PHASE_CAMPAIGNING && now >= run->timeout_at)
	{
		report(REPORT_INFO, "timeout", "not the leader within %lld ms",
			   (long long) (run->options->timeout / CLOCK_MS));
		run->reason = REASON_TIMEOUT;
		run_release(run);
	}
	if (now >= run->supervisor_at)
	{
		notify_supervisor("WATCHDOG=1");
		run->supervisor_at = now + run->supervisor_interval;
	}
}

static int64
next_time(const Run *run)
{
	int64		next = clock_earlier(campaign_next(run), run->supervisor_at);

	switch (run->phase)
	{
		case PHASE_CAMPAIGNING:
			return clock_earlier(next, run->timeout_at);
		case PHASE_LEADING:
			return clock_earlier(next, clock_earlier(run->term_at, run->silent_at));
		case PHASE_STOPPING:
			return clock_earlier(next, clock_earlier(run->term_at, run->kill_command_at));
		case PHASE_ENDING:
			if (run->keeper_lost || clock_now() >= run->kill_at)
				return clock_now() + ENDING_LOOK;
			return clock_earlier(next, run->kill_at);
		case PHASE_RELEASING:
			return clock_earlier(next, run->release_until);
		case PHASE_OVER:
			break;
	}
	return next;
}

static void
wait_and_process(Run *run)
{
	struct pollfd fds[] = {
		connection_poll(&run->connection),
		{.fd = run->keeper_lost ? -1 : run->keeper.socket,.events = POLLIN},
		{.fd = run->signals,.events = POLLIN},
		{.fd = run->notify,.events = POLLIN},
		{.fd = run->timer,.events = POLLIN}
	};

	timer_arm(run->timer, next_time(run));
	poll(fds, 5, -1);

	hear_command(run);
	check_clock(run);
	read_news(run);
	kill_unkept_command(run);
	run_read_signals(run);
	if (run->phase == PHASE_OVER)
		return;
	campaign_process(run, fds[0].revents);
}

/*--------------------------------------------------------------------------
 * All of it
 *--------------------------------------------------------------------------
 */

/* No two processes may have the same: it renews. */
static char *
unique_holder(const char *name)
{
	char		host[256] = "";
	char	   *holder;

	gethostname(host, sizeof(host) - 1);
	if (asprintf(&holder, "%s %d %016llx", name ? name : host, (int) getpid(),
				 (unsigned long long) random_number()) < 0)
		fail("out of memory");
	return holder;
}

static const char *
interval_text(int64 us)
{
	char	   *words;

	if (us == 0)
		return NULL;
	if (asprintf(&words, "%lld microseconds", (long long) us) < 0)
		fail("out of memory");
	return words;
}

static void
prepare(Run *run, const RunOptions *options, Target *target)
{
	Command    *command = calloc(1, sizeof(Command));

	if (command == NULL)
		fail("out of memory");
	run->options = options;
	run->candidacy.election = options->election;
	run->candidacy.holder = unique_holder(options->name);
	run->candidacy.metadata = options->metadata;
	run->candidacy.session = options->session;

	/* A session's term has no end unless it is given one. */
	run->ttl = options->ttl > 0 ? options->ttl : GUESSED_TTL;
	run->candidacy.ttl = interval_text(options->session ? run->ttl : options->ttl);

	run->notify = -1;
	command->argv = options->command;
	command->watchdog = options->watchdog;
	if (options->watchdog > 0)
	{
		char	   *address;

		run->notify = notify_listen(&address);
		command->notify_socket = address;
	}

	/* A signal that came between these would leave the keeper behind. */
	descendants_spare_present();
	inheritance_note(&run->inheritance);
	open_signals(run);
	keeper_start(&run->keeper, command, &run->inheritance, &run->candidacy, target);
	prctl(PR_SET_CHILD_SUBREAPER, 1);

	run->timer = timer_open();
	connection_init(&run->connection, target, true, options->election);
	run->silent_at = run->kill_command_at = run->stopped_at = CLOCK_NEVER;
	run->timeout_at = options->timeout > 0 ? clock_now() + options->timeout : CLOCK_NEVER;
	run->supervisor_interval = notify_supervisor_interval();
	run->supervisor_at = run->supervisor_interval == CLOCK_NEVER ? CLOCK_NEVER : clock_now();
	campaign_begin(run, 0);
}

/* Nothing is left to keep, so it may be killed if it is stopped. */
static void
dismiss_keeper(Run *run)
{
	struct pollfd end = {.fd = run->keeper.socket,.events = POLLIN};

	if (run->keeper_lost)
		return;
	give_order(run, ORDER_DISMISS, 0, 0);
	if (poll(&end, 1, DISMISS_MS) == 0)
		kill(run->keeper.pid, SIGKILL);
	waitpid(run->keeper.pid, NULL, 0);
}

/* The answer is the exit code.  The election's name has been checked. */
int
run_command(const RunOptions *options, Target *target)
{
	Run			run = {0};

	report_about(options->election);
	prepare(&run, options, target);
	while (run.phase != PHASE_OVER)
	{
		campaign_act(&run);
		wait_and_process(&run);
	}
	connection_close(&run.connection);
	dismiss_keeper(&run);
	return run.exit_code;
}
