/*-------------------------------------------------------------------------
 *
 * processes.c
 *	  The processes below this one, and those of a group.
 *
 * We are a child subreaper: whoever loses its parent becomes our child.  So to
 * kill all children, again and again until none is left, reaches every descendant.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <dirent.h>
#include <signal.h>
#include <sys/types.h>

#include "processes.h"

/* Whoever execs us may have had children, which are no business of ours. */
static int	spared[64];
static int	spared_count;

void
descendants_spare_present(void)
{
	FILE	   *children = fopen("/proc/thread-self/children", "re");

	if (children == NULL)
		return;
	while (spared_count < (int) lengthof(spared) &&
		   fscanf(children, "%d", &spared[spared_count]) == 1)
		spared_count++;
	fclose(children);
}

static bool
is_spared(int pid)
{
	for (int i = 0; i < spared_count; i++)
	{
		if (spared[i] == pid)
			return true;
	}
	return false;
}

/* False if there is no such process. */
static bool
read_state(const char *pid, char *state, int *group)
{
	char		path[64];
	char		line[1024];
	const char *rest;
	size_t		length;
	FILE	   *file;

	snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
	file = fopen(path, "re");
	if (file == NULL)
		return false;
	length = fread(line, 1, sizeof(line) - 1, file);
	fclose(file);
	line[length] = '\0';

	/* The program's name comes before, which may have anything in it. */
	rest = strrchr(line, ')');
	return rest && sscanf(rest + 1, " %c %*d %d", state, group) == 2;
}

static bool
is_zombie(pid_t pid)
{
	char		number[32];
	char		state;
	int			group;

	snprintf(number, sizeof(number), "%d", (int) pid);
	return read_state(number, &state, &group) && (state == 'Z' || state == 'X');
}

/*
 * Sends them a signal, if one is given, and counts those that could be reached and
 * live.  A kernel that does not tell its processes'
 * children tells of none.
 */
static int
signal_children(int number)
{
	FILE	   *children = fopen("/proc/thread-self/children", "re");
	int			reached = 0;
	int			pid;

	if (children == NULL)
		return 0;
	while (fscanf(children, "%d", &pid) == 1)
	{
		if (!is_spared(pid) && !is_zombie(pid) && kill(pid, number) == 0)
			reached++;
	}
	fclose(children);
	return reached;
}

int
descendants_kill(void)
{
	return signal_children(SIGKILL);
}

int
descendants_count(void)
{
	return signal_children(0);
}

static bool
lives_in_group(const char *pid, pid_t group)
{
	char		state;
	int			its_group;

	return read_state(pid, &state, &its_group) && its_group == group &&
		state != 'Z' && state != 'X';
}

bool
process_is_stopped(pid_t pid)
{
	char		number[32];
	char		state;
	int			group;

	snprintf(number, sizeof(number), "%d", (int) pid);
	return read_state(number, &state, &group) && (state == 'T' || state == 't');
}

/*
 * The kernel takes a zombie for a member of its group, and its parent, who may have
 * left that, may never wait for it.
 */
bool
group_lives(pid_t group)
{
	DIR		   *all;
	struct dirent *entry;
	bool		found = false;

	if (kill(-group, 0) != 0 && errno == ESRCH)
		return false;
	all = opendir("/proc");
	if (all == NULL)
		return true;
	while (!found && (entry = readdir(all)) != NULL)
		found = entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
			lives_in_group(entry->d_name, group);
	closedir(all);
	return found;
}
