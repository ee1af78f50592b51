/*-------------------------------------------------------------------------
 *
 * target.h
 *	  Which servers to connect to, and how.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEADERCTL_TARGET_H
#define LEADERCTL_TARGET_H

/* What the command line says; NULL for what it does not. */
typedef struct TargetOptions
{
	const char *dbname;			/* or a connection string or URI */
	const char *host;
	const char *port;
	const char *user;
} TargetOptions;

/* Keywords and values for libpq, which end with a NULL keyword */
typedef struct Target
{
	const char **keywords;
	const char **values;
} Target;

extern void target_make(Target *target, const TargetOptions *options,
						bool writable);
extern int	target_hosts(const Target *target);
extern void target_next_host(Target *target);

#endif							/* LEADERCTL_TARGET_H */
