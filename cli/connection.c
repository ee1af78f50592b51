/*-------------------------------------------------------------------------
 *
 * connection.c
 *	  A connection on which nothing waits without a limit.
 *
 * The caller opens it or asks a question, each with a deadline, waits for what
 * connection_poll() names, and hands on what came to connection_process(), which
 * says what has become of it.  Errors are data, not exits.
 *
 * A request that is too slow costs the connection: the server may still be at
 * it, and its late answer must not be taken for that to a later question.  What
 * became of such a request is not known.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "connection.h"
#include "json.h"
#include "report.h"

/*
 * The schema may have changed since the last connection.  To listen comes first:
 * what changes after that is notified, and what changed before is seen.
 */
#define LISTEN_SQL	"LISTEN leader_election; "
#define SCHEMA_SQL \
	"SELECT n.nspname FROM pg_catalog.pg_extension e" \
	" JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace" \
	" WHERE e.extname OPERATOR(pg_catalog.=) 'leader_election'"

/*
 * Of an election's notifications only the ends of its terms count; without an
 * election all of all elections.
 */
void
connection_init(Connection *c, Target *target, bool listens, const char *election)
{
	memset(c, 0, sizeof(*c));
	c->target = target;
	c->listens = listens;
	c->deadline = CLOCK_NEVER;
	initPQExpBuffer(&c->error);
	initPQExpBuffer(&c->notice);
	if (election)
	{
		PQExpBufferData payload;

		initPQExpBuffer(&payload);
		appendPQExpBufferStr(&payload, "{\"election\": ");
		append_json_string(&payload, election);
		appendPQExpBufferStr(&payload, ", \"event\": \"end\"}");
		c->watched = payload.data;
	}
}

static void
clear_result(Connection *c)
{
	PQclear(c->result);
	c->result = NULL;
}

static void
set_error(Connection *c, const char *error, const char *sqlstate)
{
	resetPQExpBuffer(&c->error);
	appendPQExpBufferStr(&c->error, error);
	strncpy(c->sqlstate, sqlstate ? sqlstate : "", sizeof(c->sqlstate) - 1);
	c->permanent = false;
}

/*
 * What goes wrong again however often it is tried: wrong rights, names, arguments
 * and settings.  Everything else may pass: a server that starts, is full, is no
 * primary, or changes an election just now.
 */
static bool
is_permanent(const char *sqlstate)
{
	static const char *const classes[] = {"0A", "22", "28", "3D", "3F", "42", "54"};

	for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
	{
		if (strncmp(sqlstate, classes[i], 2) == 0)
			return true;
	}
	return strcmp(sqlstate, "53400") == 0;
}

/*
 * The SQLSTATE of a refused connection is told in the message only, and there is
 * one for each host.  It is no use to try again if each has refused for good.
 */
static bool
all_hosts_refuse(const char *message)
{
	static const char failed[] = " failed: ";
	int			hosts = 0;
	int			refusals = 0;

	for (const char *p = message; (p = strstr(p, failed)) != NULL; p++)
	{
		const char *severity = p + strlen(failed);
		const char *end = severity + strcspn(severity, ":\n");
		char		sqlstate[6] = "";

		/* As in "FATAL:  28P01: ...", in the server's language */
		hosts++;
		if (strncmp(end, ":  ", 3) == 0 && strcspn(end + 3, ":\n") == 5)
			strncpy(sqlstate, end + 3, 5);
		if (is_permanent(sqlstate))
			refusals++;
	}
	return hosts > 0 && refusals == hosts;
}

/*
 * Nothing was even tried: an option has no such value, or there is no such service.
 * A host's name may be unknown for a while only.
 */
static bool
never_tried(const char *message)
{
	return strstr(message, " failed: ") == NULL &&
		strstr(message, "could not translate host name") == NULL &&
		strstr(message, "could not create socket") == NULL;
}

/*
 * The extension may have moved to another schema, or been created anew, since we
 * asked where it is.
 */
static bool
has_moved(const Connection *c)
{
	return c->proven && (strcmp(c->sqlstate, "42883") == 0 ||
						 strcmp(c->sqlstate, "42P01") == 0 ||
						 strcmp(c->sqlstate, "3F000") == 0);
}

/* The source lines that a verbose message ends with are no use to anybody. */
static void
strip_locations(PQExpBuffer message)
{
	char	   *location;

	while ((location = strstr(message->data, "\nLOCATION:  ")) != NULL)
	{
		const char *next = strchr(location + 1, '\n');

		if (next)
			memmove(location, next, strlen(next) + 1);
		else
			*location = '\0';
	}
	message->len = strlen(message->data);
	while (message->len > 0 && isspace((unsigned char) message->data[message->len - 1]))
		message->data[--message->len] = '\0';
}

/* Frees all that depends on the connection. */
void
connection_close(Connection *c)
{
	clear_result(c);
	PQfinish(c->pg);
	c->pg = NULL;
	free(c->schema);
	c->schema = NULL;
	c->state = CONN_DOWN;
	c->deadline = CLOCK_NEVER;
}

/* The same, and remembers why */
static void
connection_drop(Connection *c, const char *why)
{
	set_error(c, why, NULL);
	connection_close(c);
}

/* It was not made: what libpq says of it tells whether it ever will be. */
static ConnectionEvent
connection_failed(Connection *c)
{
	bool		never = PQconnectionNeedsPassword(c->pg) ||
		all_hosts_refuse(PQerrorMessage(c->pg)) ||
		(c->failed && never_tried(PQerrorMessage(c->pg)));

	set_error(c, PQerrorMessage(c->pg), NULL);
	strip_locations(&c->error);
	c->permanent = never;
	connection_close(c);
	return CONN_LOST;
}

static ConnectionEvent
connection_broke(Connection *c)
{
	/* The server's last words say more than libpq's. */
	if (c->sqlstate[0] == '\0')
	{
		set_error(c, c->notice.len > 0 ? c->notice.data : PQerrorMessage(c->pg), NULL);
		strip_locations(&c->error);
	}
	c->permanent = false;
	connection_close(c);
	return CONN_LOST;
}

static ConnectionEvent
connection_too_slow(Connection *c)
{
	bool		connecting = c->state == CONN_CONNECTING;
	struct linger discard = {.l_onoff = 1,.l_linger = 0};

	/* What has not been delivered yet would be done when nobody expects it. */
	setsockopt(PQsocket(c->pg), SOL_SOCKET, SO_LINGER, &discard, sizeof(discard));
	target_next_host(c->target);
	connection_drop(c, connecting ? "the server did not accept a connection in time" :
					"the server did not answer in time");
	return CONN_LOST;
}

/*
 * A server that ends an idle connection says why in what libpq takes for a
 * notice.  There is nobody to read other ones.
 */
static void
keep_notice(void *arg, const char *message)
{
	Connection *c = arg;

	resetPQExpBuffer(&c->notice);
	appendPQExpBufferStr(&c->notice, message);
}

/* Begins to connect.  The connection is down. */
void
connection_open(Connection *c, int64 deadline)
{
	set_error(c, "", NULL);
	resetPQExpBuffer(&c->notice);
	c->pg = PQconnectStartParams(c->target->keywords, c->target->values, 0);
	if (c->pg == NULL)
		fail("out of memory");

	/* Else messages would not tell the SQLSTATE. */
	PQsetErrorVerbosity(c->pg, PQERRORS_VERBOSE);
	PQsetNoticeProcessor(c->pg, keep_notice, c);
	c->proven = false;
	c->state = CONN_CONNECTING;
	c->polling = PGRES_POLLING_WRITING;

	c->failed = PQstatus(c->pg) == CONNECTION_BAD;
	c->deadline = c->failed ? 0 : deadline;
}

/* Asks for a statement's answer.  The connection is idle. */
void
connection_ask(Connection *c, const char *sql, int n, const char *const *values,
			   int64 deadline)
{
	int			sent;

	clear_result(c);
	set_error(c, "", NULL);
	resetPQExpBuffer(&c->notice);
	if (n > 0)
		sent = PQsendQueryParams(c->pg, sql, n, NULL, values, NULL, NULL, 0);
	else
		sent = PQsendQuery(c->pg, sql);
	c->state = CONN_BUSY;
	c->flushing = sent;
	c->failed = !sent;
	c->deadline = sent ? deadline : 0;
}

/* What to wait for; no descriptor if there is nothing to wait for. */
struct pollfd
connection_poll(const Connection *c)
{
	struct pollfd result = {.fd = -1};

	if (c->state == CONN_DOWN)
		return result;
	result.fd = PQsocket(c->pg);
	if (c->state != CONN_CONNECTING)
		result.events = POLLIN | (c->flushing ? POLLOUT : 0);
	else
		result.events = c->polling == PGRES_POLLING_READING ? POLLIN : POLLOUT;
	return result;
}

/* A forged one harms nobody: it only says where to look. */
static void
note_notifications(Connection *c)
{
	PGnotify   *notify;

	while ((notify = PQnotifies(c->pg)) != NULL)
	{
		if (c->watched == NULL || strcmp(notify->extra, c->watched) == 0)
			c->notified = true;
		PQfreemem(notify);
	}
}

/* Keeps the last answer, or the first error.  False for what nobody asked for. */
static bool
take_result(Connection *c, PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);
	bool		expected = status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK ||
		status == PGRES_FATAL_ERROR || status == PGRES_EMPTY_QUERY;

	if (c->error.len > 0)
		PQclear(result);
	else if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
	{
		clear_result(c);
		c->result = result;
	}
	else
	{
		const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
		char	   *message = PQresultVerboseErrorMessage(result, PQERRORS_VERBOSE,
														  PQSHOW_CONTEXT_NEVER);

		set_error(c, message ? message : "out of memory", sqlstate);
		strip_locations(&c->error);
		c->permanent = sqlstate && is_permanent(sqlstate);
		PQfreemem(message);
		PQclear(result);
	}
	return expected;
}

/* Asks what is needed for all requests, within the time left to connect. */
static void
prepare(Connection *c, bool listen)
{
	connection_ask(c, listen ? LISTEN_SQL SCHEMA_SQL : SCHEMA_SQL, 0, NULL, c->deadline);
	c->state = CONN_PREPARING;
}

/* The answer */
static ConnectionEvent
finish_preparing(Connection *c)
{
	PQExpBufferData missing;

	/* Nobody can listen on a standby, where looking now and then has to do. */
	if (strcmp(c->sqlstate, "25006") == 0)
	{
		prepare(c, false);
		return CONN_NOTHING;
	}
	if (c->error.len > 0)
	{
		connection_close(c);
		return CONN_LOST;
	}
	if (PQntuples(c->result) == 1)
	{
		char	   *quoted;

		quoted = PQescapeIdentifier(c->pg, PQgetvalue(c->result, 0, 0),
									PQgetlength(c->result, 0, 0));
		if (quoted == NULL)
			return connection_broke(c);
		c->schema = strdup(quoted);
		PQfreemem(quoted);
		c->state = CONN_IDLE;
		c->deadline = CLOCK_NEVER;
		return CONN_MADE;
	}

	initPQExpBuffer(&missing);
	appendPQExpBuffer(&missing, "extension \"leader_election\" is not installed in database \"%s\"; is it the right one?",
					  PQdb(c->pg));
	connection_drop(c, missing.data);
	c->permanent = true;
	termPQExpBuffer(&missing);
	return CONN_LOST;
}

static ConnectionEvent
finish_request(Connection *c)
{
	c->state = CONN_IDLE;
	c->deadline = CLOCK_NEVER;
	if (c->error.len == 0)
	{
		c->proven = true;
		return CONN_ANSWERED;
	}
	if (!has_moved(c))
		return CONN_REFUSED;
	c->permanent = false;
	connection_close(c);
	return CONN_LOST;
}

static ConnectionEvent
process_connecting(Connection *c, short revents)
{
	if (revents == 0)
		return CONN_NOTHING;
	c->polling = PQconnectPoll(c->pg);
	if (c->polling == PGRES_POLLING_FAILED)
		return connection_failed(c);
	if (c->polling == PGRES_POLLING_OK)
	{
		PQsetnonblocking(c->pg, 1);
		prepare(c, c->listens);
	}
	return CONN_NOTHING;
}

static ConnectionEvent
process_answers(Connection *c, short revents)
{
	PGresult   *result;

	if (c->flushing)
	{
		int			left = PQflush(c->pg);

		if (left < 0)
			return connection_broke(c);
		c->flushing = left > 0;
	}
	if ((revents & ~POLLOUT) != 0 && !PQconsumeInput(c->pg))
	{
		/* What the server said before is still to be read. */
		while (!PQisBusy(c->pg) && (result = PQgetResult(c->pg)) != NULL)
			(void) take_result(c, result);
		return connection_broke(c);
	}

	while (!PQisBusy(c->pg))
	{
		if ((result = PQgetResult(c->pg)) != NULL)
		{
			if (!take_result(c, result))
				return connection_broke(c);
		}
		else if (PQstatus(c->pg) == CONNECTION_BAD)
			return connection_broke(c);
		else if (c->state == CONN_PREPARING)
			return finish_preparing(c);
		else if (c->state == CONN_BUSY)
		{
			return finish_request(c);
		}
		else
			break;
	}
	return CONN_NOTHING;
}

/* revents is what poll() said of connection_poll()'s descriptor. */
ConnectionEvent
connection_process(Connection *c, short revents)
{
	ConnectionEvent event = CONN_NOTHING;

	if (c->state == CONN_DOWN)
		return event;

	if (c->failed)
		return c->state == CONN_CONNECTING ? connection_failed(c) : connection_broke(c);
	if (c->state == CONN_CONNECTING)
		event = process_connecting(c, revents);
	else
		event = process_answers(c, revents);

	/* What came behind an answer will not make the socket readable again. */
	if (c->state != CONN_DOWN)
		note_notifications(c);
	if (event == CONN_NOTHING && clock_now() >= c->deadline)
		event = connection_too_slow(c);
	return event;
}

/* Waits, for those who have nothing else to do, until something has come of it. */
ConnectionEvent
connection_wait(Connection *c)
{
	int			timer = timer_open();
	ConnectionEvent event = CONN_NOTHING;

	do
	{
		struct pollfd fds[2] = {connection_poll(c), {.fd = timer,.events = POLLIN}};

		timer_arm(timer, c->deadline);
		poll(fds, 2, -1);
		event = connection_process(c, fds[0].revents);
	} while (event == CONN_NOTHING);
	close(timer);
	return event;
}

ConnectionEvent
connection_wait_open(Connection *c, int64 deadline)
{
	connection_open(c, deadline);
	return connection_wait(c);
}
