/*-------------------------------------------------------------------------
 *
 * arguments.h
 *	  Reads and checks the arguments of SQL functions.
 *
 * Each function takes the argument's number, and raises 22004 for a NULL that
 * has no meaning and 22023 for a value out of range.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_ARGUMENTS_H
#define LE_ARGUMENTS_H

#include "fmgr.h"

/* The name of an election or a holder, as a new string. */
extern char *le_arg_name(FunctionCallInfo fcinfo, int n, const char *what);

/* An epoch; any bigint, as one that was never issued has its own error. */
extern int64 le_arg_epoch(FunctionCallInfo fcinfo, int n);

/* An interval in microseconds; the default for NULL. */
extern int64 le_arg_interval(FunctionCallInfo fcinfo, int n, int64 min,
							 int64 max, int64 missing, const char *what);

/* A jsonb that may be NULL; 54000 if it is too large. */
extern Datum le_arg_metadata(FunctionCallInfo fcinfo, int n, bool *isnull);

/* Can the string be a name? */
extern bool le_name_is_valid(const char *name);

/* Error 22023 for a string that cannot be the name of what it is to name. */
extern void le_check_name(const char *name, const char *what);

#endif							/* LE_ARGUMENTS_H */
