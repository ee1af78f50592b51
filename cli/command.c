/*-------------------------------------------------------------------------
 *
 * command.c
 *	  The program that is run while we lead.
 *
 * It gets a process group of its own, the terminal if we had it, the signals as
 * we found them, none of our descriptors, and an environment by which it is
 * fenced without knowing of it.  It cannot outlive the process that forked it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "pqexpbuffer.h"

#include "command.h"
#include "report.h"

/* Before anything is done to signals */
void
inheritance_note(Inheritance *inheritance)
{
	sigprocmask(SIG_SETMASK, NULL, &inheritance->mask);
	for (int number = 1; number < NSIG; number++)
	{
		if (sigaction(number, NULL, &inheritance->actions[number]) != 0)
			inheritance->actions[number].sa_handler = SIG_DFL;
	}
	inheritance->group = getpgrp();
	inheritance->has_terminal = isatty(STDIN_FILENO) &&
		tcgetpgrp(STDIN_FILENO) == inheritance->group;
}

static void
set_environment(const char *name, const char *value)
{
	if (setenv(name, value, 1) != 0)
		fail("could not set the environment of the command: %m");
}

/* In quotes there is no name that would not fit. */
static void
append_quoted(PQExpBuffer tokens, const char *election)
{
	appendPQExpBufferChar(tokens, '"');
	for (const char *c = election; *c; c++)
	{
		if (*c == '"')
			appendPQExpBufferChar(tokens, '"');
		appendPQExpBufferChar(tokens, *c);
	}
	appendPQExpBufferChar(tokens, '"');
}

/* The length of a token as in "closing"=42; 0 if that is none of ours. */
static size_t
token_length(const char *token)
{
	const char *c = token;

	if (*c++ != '"')
		return 0;
	while (*c && (c[0] != '"' || c[1] == '"'))
		c += c[0] == '"' ? 2 : 1;
	if (c[0] != '"' || c[1] != '=' || strspn(c + 2, "0123456789") == 0)
		return 0;
	c += 2;
	return c + strspn(c, "0123456789") - token;
}

/*
 * The tokens that we were told to present ourselves, but for one of an election of
 * the same name, as each may be there once
 */
static void
append_inherited(PQExpBuffer tokens, const char *inherited, const char *own)
{
	size_t		length;

	while (inherited && (length = token_length(inherited)) > 0)
	{
		if (strncmp(inherited, own, strlen(own)) != 0 || inherited[strlen(own)] != '=')
			appendPQExpBuffer(tokens, "%.*s,", (int) length, inherited);
		inherited += length;
		inherited += *inherited == ',';
	}
}

/*
 * The tokens that the command presents.  If we are ourselves the command of
 * another one of us, then also those that we were told to present: the later
 * setting in PGOPTIONS hides the former.
 */
static void
present_tokens(const Leadership *leadership)
{
	const char *options = getenv("PGOPTIONS");
	PQExpBufferData own;
	PQExpBufferData tokens;
	PQExpBufferData pgoptions;

	initPQExpBuffer(&own);
	append_quoted(&own, leadership->election);
	initPQExpBuffer(&tokens);
	append_inherited(&tokens, getenv("LEADER_FENCE"), own.data);
	appendPQExpBuffer(&tokens, "%s=%lld", own.data, (long long) leadership->epoch);
	termPQExpBuffer(&own);
	set_environment("LEADER_FENCE", tokens.data);

	initPQExpBuffer(&pgoptions);
	if (options && *options)
		appendPQExpBuffer(&pgoptions, "%s ", options);
	appendPQExpBufferStr(&pgoptions, "-c leader_election.fence=");
	for (const char *c = tokens.data; *c; c++)
	{
		/* The server splits it at spaces. */
		if (strchr(" \t\n\r\f\v\\", *c))
			appendPQExpBufferChar(&pgoptions, '\\');
		appendPQExpBufferChar(&pgoptions, *c);
	}
	set_environment("PGOPTIONS", pgoptions.data);
	termPQExpBuffer(&tokens);
	termPQExpBuffer(&pgoptions);
}

static void
set_environments(const Command *command, const Leadership *leadership)
{
	char		number[32];

	snprintf(number, sizeof(number), "%lld", (long long) leadership->epoch);
	set_environment("LEADER_ELECTION", leadership->election);
	set_environment("LEADER_EPOCH", number);
	set_environment("LEADER_HOLDER", leadership->holder);
	present_tokens(leadership);

	/* Our own supervisor is not the command's. */
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
	if (command->notify_socket)
	{
		snprintf(number, sizeof(number), "%lld", (long long) command->watchdog);
		set_environment("NOTIFY_SOCKET", command->notify_socket);
		set_environment("WATCHDOG_USEC", number);
	}
}

/* Signals of what was ignored before stay ignored, as nohup has it. */
static void
restore_signals(const Inheritance *inheritance)
{
	for (int number = 1; number < NSIG; number++)
	{
		if (number != SIGKILL && number != SIGSTOP)
			sigaction(number, &inheritance->actions[number], NULL);
	}
	sigprocmask(SIG_SETMASK, &inheritance->mask, NULL);
}

/* In the new process; does not return. */
static void
become_command(const Command *command, const Inheritance *inheritance,
			   const Leadership *leadership, pid_t parent, int go, int failure)
{
	char		ready;
	int			error;

	setpgid(0, 0);

	/* It dies with its parent, who may have died before we could say so. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || read(go, &ready, 1) != 1)
		_exit(EXIT_FAILED);

	/* Somebody else may have got it meanwhile. */
	if (inheritance->has_terminal && tcgetpgrp(STDIN_FILENO) == inheritance->group)
		tcsetpgrp(STDIN_FILENO, getpid());

	set_environments(command, leadership);
	restore_signals(inheritance);
	execvp(command->argv[0], command->argv);
	error = errno;
	if (write(failure, &error, sizeof(error)) != sizeof(error))
		_exit(EXIT_FAILED);
	_exit(error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}

/*
 * The command waits until a byte is written to "*go": its parent wants to tell
 * of it before it does anything.  "*failure" is for command_failure().  Both are
 * the caller's to close.  Returns -1, with errno, if nothing was forked.
 */
pid_t
command_fork(const Command *command, const Inheritance *inheritance,
			 const Leadership *leadership, int *go, int *failure)
{
	int			to_go[2],
				from_failure[2];
	pid_t		parent = getpid();
	pid_t		pid;
	int			error;

	if (pipe2(to_go, O_CLOEXEC) != 0)
		return -1;
	if (pipe2(from_failure, O_CLOEXEC) != 0)
	{
		error = errno;
		close(to_go[0]);
		close(to_go[1]);
		errno = error;
		return -1;
	}
	pid = fork();
	if (pid == 0)
	{
		/* Else it would not see that the parent is gone. */
		close(to_go[1]);
		become_command(command, inheritance, leadership, parent, to_go[0], from_failure[1]);
	}
	error = errno;
	close(to_go[0]);
	close(from_failure[1]);
	if (pid > 0)
	{
		/* Both do it, as nobody knows who comes first. */
		setpgid(pid, pid);
		*go = to_go[1];
		*failure = from_failure[0];
		return pid;
	}
	close(to_go[1]);
	close(from_failure[0]);
	errno = error;
	return -1;
}

/* Of a command that has ended: why it could not be executed, or 0. */
int
command_failure(int failure)
{
	int			error;

	return read(failure, &error, sizeof(error)) == sizeof(error) ? error : 0;
}

/* From the command's group, if that still has it; SIGTTOU is blocked or ignored. */
void
terminal_take_back(const Inheritance *inheritance, pid_t from)
{
	if (inheritance->has_terminal && tcgetpgrp(STDIN_FILENO) == from)
		tcsetpgrp(STDIN_FILENO, inheritance->group);
}
