/*-------------------------------------------------------------------------
 *
 * names.h
 *	  Sets of names.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_NAMES_H
#define LE_NAMES_H

#include "nodes/pg_list.h"

/* Sorts a list of names in place, for the other one. */
extern void le_names_sort(List *names);

extern bool le_names_contain(List *sorted, const char *name);

#endif							/* LE_NAMES_H */
