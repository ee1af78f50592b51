/*-------------------------------------------------------------------------
 *
 * names.c
 *	  Sets of names.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "names.h"

static int
compare(const ListCell *a, const ListCell *b)
{
	return strcmp(lfirst(a), lfirst(b));
}

void
le_names_sort(List *names)
{
	list_sort(names, compare);
}

bool
le_names_contain(List *sorted, const char *name)
{
	int			low = 0;
	int			high = list_length(sorted);

	while (low < high)
	{
		int			middle = low + (high - low) / 2;
		int			order = strcmp(name, list_nth(sorted, middle));

		if (order == 0)
			return true;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return false;
}
