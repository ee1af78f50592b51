/*-------------------------------------------------------------------------
 *
 * keeper.c
 *	  The process that runs the command and ends it in time.
 *
 * The other process speaks with the database.  This one knows until when that
 * has said that the lease lasts, and at that time tells the command to end, and
 * kills it, whatever has become of the other: stopped, busy, waiting for a name
 * server.  If the other is gone, it kills the command at once and gives the lease
 * back, so that nobody has to wait for its end.
 *
 * The command is our child, and what its processes leave behind becomes our child
 * too, so we know when all are gone.  The lease is given back only then.
 *
 * Whoever kills us both leaves at least the command dead (see command.c); and
 * if only we are killed, our children become those of the other process.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "connection.h"
#include "keeper.h"
#include "processes.h"
#include "report.h"

/* How long those may live on who outlive the command, and how often we look. */
#define LINGER_TIME		CLOCK_SECOND
#define LINGER_LOOK		(20 * CLOCK_MS)

/* How long one attempt to give a lease back may take */
#define GIVE_BACK_TRY	(2 * CLOCK_SECOND)

typedef struct Charge
{
	const Command *command;
	const Candidacy *candidacy;
	Target	   *target;
	Inheritance inheritance;
	int			socket;
	bool		orphaned;		/* the other process is gone */

	/* The command; all below is void while "pid" is 0. */
	pid_t		pid;
	int			failure;
	bool		told;			/* to end, as time is up */
	bool		doomed;			/* nothing of it may go on, wherever */
	bool		killing;
	bool		ended;			/* the command itself, if not yet its group */
	int64		term_at;
	int64		kill_at;
	int64		group_kill_at;	/* of those that outlive the command */
} Charge;

/* True if there was something; "*lost" if there will never be anything. */
static bool
receive(int socket, void *packet, size_t size, bool *lost)
{
	ssize_t		got = recv(socket, packet, size, MSG_DONTWAIT);

	/* This comes before what the other one has sent while it lived. */
	if (got < 0 && errno == ECONNRESET)
		got = recv(socket, packet, size, MSG_DONTWAIT);
	if (got == (ssize_t) size)
		return true;
	if (got >= 0 || (errno != EAGAIN && errno != EINTR))
		*lost = true;
	return false;
}

static void
tell(const Charge *charge, NewsKind kind, int status, int left)
{
	News		news = {.kind = kind,.pid = charge->pid,.status = status,.left = left};

	/* If nobody is there any more, there is nobody to tell. */
	send(charge->socket, &news, sizeof(news), MSG_DONTWAIT | MSG_NOSIGNAL);
}

static bool
is_stop(int number)
{
	return number == SIGTERM || number == SIGINT || number == SIGQUIT ||
		number == SIGKILL;
}

/* A stopped process would not notice that it is to end. */
static void
signal_group(const Charge *charge, int number)
{
	kill(-charge->pid, number);
	if (is_stop(number))
		kill(-charge->pid, SIGCONT);
}

static void
start_command(Charge *charge, const Order *order)
{
	Leadership	leadership = {
		.election = charge->candidacy->election,
		.holder = charge->candidacy->holder,
		.epoch = order->epoch
	};
	int			go;
	pid_t		pid = command_fork(charge->command, &charge->inheritance,
								   &leadership, &go, &charge->failure);

	if (pid < 0)
	{
		tell(charge, NEWS_NOT_STARTED, errno, 0);
		tell(charge, NEWS_GONE, 0, 0);
		return;
	}
	charge->pid = pid;
	charge->told = charge->doomed = charge->killing = charge->ended = false;
	charge->term_at = order->term_at;
	charge->kill_at = order->kill_at;
	charge->group_kill_at = CLOCK_NEVER;
	tell(charge, NEWS_STARTED, 0, 0);

	/*
	 * The order may be old.  If writing fails then the command has died
	 * already.
	 */
	if (clock_now() < charge->term_at)
		(void) !write(go, "", 1);
	close(go);
}

static void
obey(Charge *charge, const Order *order)
{
	switch (order->kind)
	{
		case ORDER_START:
			start_command(charge, order);
			break;
		case ORDER_EXTEND:
			charge->term_at = order->term_at;
			charge->kill_at = order->kill_at;
			break;
		case ORDER_SIGNAL:
			if (charge->pid == 0)
				break;
			charge->doomed |= is_stop(order->signal);
			if (order->signal == SIGKILL)
				charge->killing = true;
			else
				signal_group(charge, order->signal);
			break;
		case ORDER_STEP_DOWN:
			if (charge->pid == 0)
				break;
			charge->kill_at = clock_earlier(charge->kill_at, order->kill_at);

			/* A second one may mean that there is no time to tidy up. */
			if (!charge->told)
				signal_group(charge, SIGTERM);
			charge->told = charge->doomed = true;
			break;
		case ORDER_DISMISS:
			_exit(0);
	}
}

static void
read_orders(Charge *charge)
{
	Order		order;

	while (receive(charge->socket, &order, sizeof(order), &charge->orphaned))
		obey(charge, &order);
}

/* Ends what the command's end has left in its group. */
static void
command_ended(Charge *charge, int status)
{
	int			error = command_failure(charge->failure);

	close(charge->failure);
	charge->ended = true;
	charge->group_kill_at = clock_now() + LINGER_TIME;
	tell(charge, error ? NEWS_NOT_STARTED : NEWS_ENDED, error ? error : status, 0);
	signal_group(charge, SIGTERM);
}

static void
reap(Charge *charge)
{
	pid_t		pid;
	int			status;

	while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0)
	{
		/* Nobody would resume what Ctrl-Z has stopped, as we do not stop. */
		if (WIFSTOPPED(status))
		{
			if (pid == charge->pid && WSTOPSIG(status) == SIGTSTP &&
				charge->inheritance.has_terminal)
				kill(-pid, SIGCONT);
		}
		else if (pid == charge->pid && !charge->ended)
			command_ended(charge, status);
	}
}

/* Whether anything of the command is left that may not be left */
static bool
lives_on(const Charge *charge)
{
	if (!charge->ended || group_lives(charge->pid))
		return true;

	/* Those who have left the group may stay only if they were not to end. */
	return (charge->doomed || charge->killing) && descendants_kill() > 0;
}

/* Does what is due.  The clock is read after whatever delayed us. */
static void
enforce(Charge *charge)
{
	int64		now = clock_now();

	if (charge->pid == 0)
		return;
	if (charge->orphaned || now >= charge->kill_at)
		charge->killing = true;
	if (!charge->killing && !charge->told && now >= charge->term_at)
	{
		charge->told = charge->doomed = true;
		if (!charge->ended)
			tell(charge, NEWS_STEPPING_DOWN, 0, 0);
		signal_group(charge, SIGTERM);
	}
	if (charge->killing || now >= charge->group_kill_at)
		kill(-charge->pid, SIGKILL);
	if (charge->killing)
		descendants_kill();

	if (!lives_on(charge))
	{
		terminal_take_back(&charge->inheritance, charge->pid);
		tell(charge, NEWS_GONE, 0, descendants_count());
		charge->pid = 0;
	}
}

static int64
next_look(const Charge *charge)
{
	int64		next;

	if (charge->pid == 0)
		return CLOCK_NEVER;
	if (charge->ended || charge->killing)
		return clock_now() + LINGER_LOOK;
	next = charge->kill_at;
	if (!charge->told)
		next = clock_earlier(next, charge->term_at);
	return next;
}

/* True if the answer came, whatever it was.  Each host gets a part of the time. */
static bool
try_to_give_back(Connection *c, const Candidacy *candidacy, bool *given)
{
	int64		until = clock_now() + GIVE_BACK_TRY;

	if (c->state == CONN_DOWN && connection_wait_open(c, until) != CONN_MADE)
		return false;
	ask_for_release(c, candidacy, until);
	if (connection_wait(c) != CONN_ANSWERED)
		return false;
	*given = read_release(c->result);
	return true;
}

/*
 * A grant that was asked for may be under way still, so that nothing to give back
 * now does not mean that there will be nothing.
 */
static void
give_back(const Charge *charge)
{
	Connection	c;
	int64		start = clock_now();
	bool		given = false;
	bool		asked = false;
	bool		again;

	/* A session has ended by itself. */
	if (charge->candidacy->session)
		return;
	connection_init(&c, charge->target, false, NULL);
	do
	{
		bool		answered = try_to_give_back(&c, charge->candidacy, &given);
		int64		passed = clock_now() - start;

		asked |= answered;
		again = !given && !(c.permanent && !answered) &&
			passed < (asked ? BID_TIME : RELEASE_TIME);
		if (again)
			usleep(BID_LOOK);
	} while (again);

	if (given)
		report(REPORT_WARNING, "orphaned", "leaderctl was killed; the command is dead, and the lease has been released");
	else if (!asked)
		report(REPORT_WARNING, "orphaned", "leaderctl was killed; the command is dead, but the lease could not be released: %s",
			   c.error.data);
	connection_close(&c);
}

static void
keep(Charge *charge)
{
	sigset_t	child;
	int			timer = timer_open();
	int			signals;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	signals = signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC);
	if (signals < 0)
		fail("could not create a descriptor for signals: %m");

	for (;;)
	{
		struct pollfd fds[] = {
			{.fd = charge->orphaned ? -1 : charge->socket,.events = POLLIN},
			{.fd = signals,.events = POLLIN},
			{.fd = timer,.events = POLLIN}
		};
		struct signalfd_siginfo ignored;

		read_orders(charge);
		reap(charge);
		enforce(charge);
		if (charge->orphaned && charge->pid == 0)
			break;

		timer_arm(timer, next_look(charge));
		poll(fds, 3, -1);
		while (read(signals, &ignored, sizeof(ignored)) > 0)
			 /* waitpid() tells more */ ;
	}
	give_back(charge);
	_exit(EXIT_FAILED);
}

/*
 * Forks it, before there is any connection.  What is pointed to lives as long as
 * the process, but for "inheritance".
 */
void
keeper_start(Keeper *keeper, const Command *command, const Inheritance *inheritance,
			 const Candidacy *candidacy, Target *target)
{
	int			sockets[2];
	Charge		charge = {
		.command = command,
		.inheritance = *inheritance,
		.candidacy = candidacy,
		.target = target
	};
	sigset_t	all;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
		fail("could not create a pair of sockets: %m");
	keeper->pid = fork();
	if (keeper->pid < 0)
		fail("could not create a process: %m");
	if (keeper->pid > 0)
	{
		close(sockets[1]);
		keeper->socket = sockets[0];
		return;
	}

	/* Nothing that is sent to us or to our group is for this process. */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	signal(SIGCHLD, SIG_DFL);
	setpgid(0, 0);
	prctl(PR_SET_NAME, "leaderctl-guard");
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	close(sockets[0]);
	charge.socket = sockets[1];
	keep(&charge);
}

/* False if it is gone. */
bool
keeper_order(const Keeper *keeper, const Order *order)
{
	return send(keeper->socket, order, sizeof(*order), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(*order);
}

/* True if there was something; "*lost" if there will never be anything. */
bool
keeper_news(const Keeper *keeper, News *news, bool *lost)
{
	return receive(keeper->socket, news, sizeof(*news), lost);
}
