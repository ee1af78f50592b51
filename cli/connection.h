/*-------------------------------------------------------------------------
 *
 * connection.h
 *	  A connection on which nothing waits without a limit.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEADERCTL_CONNECTION_H
#define LEADERCTL_CONNECTION_H

#include <poll.h>

#include "libpq-fe.h"
#include "pqexpbuffer.h"

#include "target.h"

typedef enum
{
	CONN_DOWN,
	CONN_CONNECTING,
	CONN_PREPARING,				/* asks for what is needed for all requests */
	CONN_IDLE,
	CONN_BUSY					/* a request is under way */
} ConnectionState;

typedef enum
{
	CONN_NOTHING,
	CONN_MADE,
	CONN_ANSWERED,				/* "result" is the answer */
	CONN_REFUSED,				/* the request failed, see "error" */
	CONN_LOST					/* it was not made, broke, or was too slow */
} ConnectionEvent;

typedef struct Connection
{
	Target	   *target;
	bool		listens;		/* to notifications of elections */
	char	   *watched;		/* the payload that counts; NULL for all */

	ConnectionState state;
	PGconn	   *pg;
	PostgresPollingStatusType polling;
	bool		flushing;
	bool		failed;			/* to begin, which is told at the next look */
	int64		deadline;		/* of what is under way */
	PGresult   *result;
	char	   *schema;			/* the extension's, quoted */
	bool		proven;			/* something has been answered */
	bool		notified;		/* since this was last reset */

	PQExpBufferData notice;		/* the last one that nobody had asked for */
	PQExpBufferData error;
	char		sqlstate[6];	/* empty if the server did not say one */
	bool		permanent;		/* trying again is no use */
} Connection;

extern void connection_init(Connection *c, Target *target, bool listens,
							const char *election);
extern void connection_open(Connection *c, int64 deadline);
extern void connection_ask(Connection *c, const char *sql, int n,
						   const char *const *values, int64 deadline);
extern void connection_close(Connection *c);
extern struct pollfd connection_poll(const Connection *c);
extern ConnectionEvent connection_process(Connection *c, short revents);
extern ConnectionEvent connection_wait(Connection *c);
extern ConnectionEvent connection_wait_open(Connection *c, int64 deadline);

#endif							/* LEADERCTL_CONNECTION_H */
