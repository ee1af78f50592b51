/*-------------------------------------------------------------------------
 *
 * notify.c
 *	  The protocol of sd_notify, to a supervisor and from the command.
 *
 * The command's messages come to a socket in the abstract namespace, which leaves
 * no file behind however we end.  Anybody on the machine can write to it, so only
 * what comes from our own user counts.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "notify.h"
#include "report.h"

#define MESSAGES_MOST	64

/* Returns a socket, and its name for NOTIFY_SOCKET, which lives on. */
int
notify_listen(char **address)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int			yes = 1;
	int			fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int			length;

	length = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1,
					  "leaderctl-%d-%016llx", (int) getpid(), (unsigned long long) random_number());
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)) != 0 ||
		bind(fd, (struct sockaddr *) &name,
			 offsetof(struct sockaddr_un, sun_path) + 1 + length) != 0)
		fail("could not create a socket for the command's messages: %m");
	if (asprintf(address, "@%s", name.sun_path + 1) < 0)
		fail("out of memory");
	return fd;
}

/* The user that the kernel says a message is from; descriptors in it are closed. */
static bool
is_from_us(struct msghdr *message)
{
	bool		ours = false;

	for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part))
	{
		if (part->cmsg_level != SOL_SOCKET)
			continue;
		if (part->cmsg_type == SCM_CREDENTIALS)
		{
			struct ucred *from = (struct ucred *) CMSG_DATA(part);

			ours = from->uid == geteuid();
		}
		else if (part->cmsg_type == SCM_RIGHTS)
		{
			int			count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);

			for (int i = 0; i < count; i++)
				close(((int *) CMSG_DATA(part))[i]);
		}
	}
	return ours;
}

static bool
has_line(const char *words, const char *line)
{
	size_t		length = strlen(line);

	for (; words; words = strchr(words, '\n'))
	{
		if (*words == '\n')
			words++;
		if (strncmp(words, line, length) == 0 && (words[length] == '\n' || words[length] == '\0'))
			return true;
	}
	return false;
}

/*
 * Reads what there is, but not for ever, whoever may send; true if the command has
 * said that it is alive.
 */
bool
notify_heard(int fd)
{
	bool		alive = false;

	for (int messages = 0; messages < MESSAGES_MOST; messages++)
	{
		char		words[4096];
		union
		{
			struct cmsghdr aligned;
			char		room[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(64 * sizeof(int))];
		}			control;
		struct iovec data = {.iov_base = words,.iov_len = sizeof(words) - 1};
		struct msghdr message = {
			.msg_iov = &data,
			.msg_iovlen = 1,
			.msg_control = &control,
			.msg_controllen = sizeof(control)
		};
		ssize_t		got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

		if (got < 0)
			return alive;
		words[got] = '\0';
		if (is_from_us(&message) && has_line(words, "WATCHDOG=1"))
			alive = true;
	}
	return alive;
}

/* To ours, if we have one */
void
notify_supervisor(const char *format,...)
{
	const char *address = getenv("NOTIFY_SOCKET");
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	char	   *words;
	va_list		args;
	int			length;
	int			fd;

	if (address == NULL || strlen(address) < 2 || strlen(address) >= sizeof(name.sun_path))
		return;
	va_start(args, format);
	length = vasprintf(&words, format, args);
	va_end(args);
	if (length < 0)
		return;

	strcpy(name.sun_path, address);
	if (name.sun_path[0] == '@')
		name.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0)
	{
		sendto(fd, words, length, MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *) &name,
			   offsetof(struct sockaddr_un, sun_path) + strlen(address));
		close(fd);
	}
	free(words);
}

/* How often it wants to hear from us; CLOCK_NEVER if it does not. */
int64
notify_supervisor_interval(void)
{
	const char *interval = getenv("WATCHDOG_USEC");
	const char *pid = getenv("WATCHDOG_PID");
	int64		us;

	if (interval == NULL || (pid && atoll(pid) != getpid()))
		return CLOCK_NEVER;
	us = atoll(interval);
	return us > 1 ? us / 2 : CLOCK_NEVER;
}
