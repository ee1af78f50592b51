/*-------------------------------------------------------------------------
 *
 * template.h
 *	  The election of a row: a name in which columns of the row may stand.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_TEMPLATE_H
#define LE_TEMPLATE_H

#include "access/htup.h"
#include "utils/relcache.h"

typedef struct LeTemplate LeTemplate;

/*
 * The template with that text for that table, as a new structure in the current
 * context.  Errors: 22023 malformed, 42703 no such column, 0A000 a column whose
 * value cannot stand in a name.
 */
extern LeTemplate *le_template_parse(const char *text, Relation rel);

/* Would that succeed? */
extern bool le_template_fits(const char *text, Relation rel);

/* The one name that a template without columns stands for, else NULL. */
extern const char *le_template_constant(const LeTemplate *template);

/*
 * Writes the election of a row to name, which has room for LE_NAME_MAX bytes
 * and a terminator, and returns its length.  Whether that can be a name is left
 * to the caller.  Errors: 22004 a column is null, 22023 it is too long.
 */
extern Size le_template_expand(const LeTemplate *template, HeapTuple row,
							   Relation rel, char *name);

#endif							/* LE_TEMPLATE_H */
