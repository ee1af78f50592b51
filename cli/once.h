/*-------------------------------------------------------------------------
 *
 * once.h
 *	  One question, one answer.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEADERCTL_ONCE_H
#define LEADERCTL_ONCE_H

#include "connection.h"

extern const PGresult *ask_once(Connection *c, const char *sql, int n,
								const char *const *values);

#endif							/* LEADERCTL_ONCE_H */
