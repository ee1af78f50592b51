/*-------------------------------------------------------------------------
 *
 * descendants.c
 *	  The processes below this one, which is a child subreaper: whoever loses its
 *	  parent becomes our child.  So to kill all children, again and again until
 *	  none is left, reaches every descendant.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <signal.h>
#include <sys/types.h>

#include "descendants.h"

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

/*
 * Sends them a signal, if one is given, and counts those that could be reached.
 * Zombies count too; the caller reaps.  A kernel that does not tell its processes'
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
		if (!is_spared(pid) && kill(pid, number) == 0)
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
