/*-------------------------------------------------------------------------
 *
 * watch.c
 *	  leaderctl watch: changes of leadership as they come.
 *
 * A notification says only that something has changed, and an expiry or the end
 * of a session is not notified at all: so we look at the status again, then and
 * at times, and print what is different.  What comes and goes between two looks
 * is told by "history".
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <poll.h>
#include <unistd.h>

#include "clock.h"
#include "json.h"
#include "questions.h"
#include "report.h"
#include "watch.h"

#define LOOK_LEAST		(10 * CLOCK_MS)
#define LOOK_MOST		CLOCK_SECOND
#define ANSWER_TIME		(10 * CLOCK_SECOND)
#define BACKOFF_LEAST	(100 * CLOCK_MS)
#define BACKOFF_MOST	(5 * CLOCK_SECOND)

#define LOOK_SQL \
	"SELECT election, coalesce(state, ''), coalesce(leader, ''), coalesce(epoch, 0)," \
	" coalesce(paused, false), extract(epoch FROM expires_in) FROM %s.leader_status" \
	" WHERE $1::pg_catalog.text IS NULL OR election OPERATOR(pg_catalog.=) $1" \
	" ORDER BY election COLLATE pg_catalog.\"C\" USING OPERATOR(pg_catalog.<)"

enum
{
	COLUMN_ELECTION,
	COLUMN_STATE,
	COLUMN_LEADER,
	COLUMN_EPOCH,
	COLUMN_PAUSED,
	COLUMN_EXPIRES_IN
};

typedef struct Watch
{
	Connection	connection;
	const char *election;
	bool		json;
	bool		connected_before;
	int			failures;
	PGresult   *seen;			/* the last answer, or NULL */
} Watch;

static void
print_event(const Watch *watch, const PGresult *rows, int row, const char *event, const char *words)
{
	const char *values[] = {
		PQgetvalue(rows, row, COLUMN_ELECTION),
		PQgetvalue(rows, row, COLUMN_LEADER)
	};
	const char *epoch = PQgetvalue(rows, row, COLUMN_EPOCH);
	PQExpBufferData line;

	initPQExpBuffer(&line);
	if (watch->json)
	{
		appendPQExpBufferStr(&line, "{\"time\": \"");
		append_time(&line);
		appendPQExpBufferStr(&line, "\", \"election\": ");
		append_json_words(&line, values[0]);
		appendPQExpBuffer(&line, ", \"event\": \"%s\", \"leader\": ", event);
		if (*values[1])
			append_json_words(&line, values[1]);
		else
			appendPQExpBufferStr(&line, "null");
		appendPQExpBuffer(&line, ", \"epoch\": %s}", strcmp(epoch, "0") == 0 ? "null" : epoch);
	}
	else
	{
		append_time(&line);
		appendPQExpBuffer(&line, " %s: %s", values[0], words);
	}
	puts(line.data);
	termPQExpBuffer(&line);
	finish_output();
}

/* What is the case in a row of the answer, where something else was before */
static void
print_state(const Watch *watch, const PGresult *rows, int row)
{
	const char *state = PQgetvalue(rows, row, COLUMN_STATE);
	char		words[1024];

	if (strcmp(state, "held") == 0)
	{
		snprintf(words, sizeof(words), "\"%s\" leads with epoch %s",
				 PQgetvalue(rows, row, COLUMN_LEADER), PQgetvalue(rows, row, COLUMN_EPOCH));
		print_event(watch, rows, row, "leader", words);
	}
	else if (strcmp(state, "unconfirmed") == 0)
		print_event(watch, rows, row, state, "nobody leads: a standby has to confirm the term");
	else if (strcmp(state, "expired") == 0)
		print_event(watch, rows, row, state, "nobody leads: the lease has run out");
	else if (strcmp(state, "free") == 0)
		print_event(watch, rows, row, state, "nobody leads");
	else
		print_event(watch, rows, row, "hidden", "its state may not be seen");
}

static bool
differs(const PGresult *a, int row_a, const PGresult *b, int row_b, int column)
{
	return strcmp(PQgetvalue(a, row_a, column), PQgetvalue(b, row_b, column)) != 0;
}

static void
print_change(const Watch *watch, const PGresult *old, int old_row, const PGresult *new, int new_row)
{
	bool		paused = PQgetvalue(new, new_row, COLUMN_PAUSED)[0] == 't';

	if (differs(old, old_row, new, new_row, COLUMN_STATE) ||
		differs(old, old_row, new, new_row, COLUMN_EPOCH) ||
		differs(old, old_row, new, new_row, COLUMN_LEADER))
		print_state(watch, new, new_row);
	if (differs(old, old_row, new, new_row, COLUMN_PAUSED))
		print_event(watch, new, new_row, paused ? "paused" : "resumed",
					paused ? "paused" : "resumed");
}

/* Both are in the order of their names. */
static void
print_changes(const Watch *watch, const PGresult *old, const PGresult *new)
{
	int			i = 0;
	int			j = 0;
	int			old_count = old ? PQntuples(old) : 0;

	while (i < old_count || j < PQntuples(new))
	{
		int			order = i == old_count ? 1 : j == PQntuples(new) ? -1 :
			strcmp(PQgetvalue(old, i, COLUMN_ELECTION), PQgetvalue(new, j, COLUMN_ELECTION));

		if (order == 0)
			print_change(watch, old, i++, new, j++);
		else if (order < 0)
			print_event(watch, old, i++, "dropped", "dropped");
		else
		{
			print_state(watch, new, j);
			if (PQgetvalue(new, j, COLUMN_PAUSED)[0] == 't')
				print_event(watch, new, j, "paused", "paused");
			j++;
		}
	}
}

/* When the first lease will run out, but not too late for a session's end */
static int64
next_look(const PGresult *rows)
{
	int64		pause = LOOK_MOST;

	for (int row = 0; row < PQntuples(rows); row++)
	{
		double		left = strtod(PQgetvalue(rows, row, COLUMN_EXPIRES_IN), NULL);

		if (left > 0)
			pause = clock_earlier(pause, (int64) (left * CLOCK_SECOND));
	}
	return clock_now() + clock_later(pause, LOOK_LEAST);
}

static bool
look(Watch *watch)
{
	Connection *c = &watch->connection;
	const char *values[] = {watch->election};

	ask(c, LOOK_SQL, 1, values, clock_now() + ANSWER_TIME);
	if (connection_wait(c) != CONN_ANSWERED)
		return false;
	print_changes(watch, watch->seen, c->result);
	PQclear(watch->seen);
	watch->seen = c->result;
	c->result = NULL;
	return true;
}

/* Until it is time to look again; false if the connection is lost. */
static bool
wait_for_change(Watch *watch)
{
	Connection *c = &watch->connection;
	int64		until = next_look(watch->seen);
	int			timer = timer_open();
	bool		lives = true;

	timer_arm(timer, until);
	while (lives && !c->notified && clock_now() < until)
	{
		struct pollfd fds[2] = {connection_poll(c), {.fd = timer,.events = POLLIN}};

		poll(fds, 2, -1);
		lives = connection_process(c, fds[0].revents) == CONN_NOTHING;
	}
	c->notified = false;
	close(timer);
	return lives;
}

/* Looks and waits for as long as the connection lives. */
static void
watch_once(Watch *watch)
{
	Connection *c = &watch->connection;

	if (c->state == CONN_DOWN && connection_wait_open(c, clock_now() + ANSWER_TIME) != CONN_MADE)
		return;
	watch->connected_before = true;
	while (look(watch))
	{
		watch->failures = 0;
		if (!wait_for_change(watch))
			return;
	}
}

/* Returns only when there is no use in going on. */
int
watch(const Options *options, Target *target)
{
	Watch		watch = {.election = options->election,.json = options->json};

	connection_init(&watch.connection, target, true, NULL);
	for (;;)
	{
		int64		pause;

		watch_once(&watch);
		if (watch.connection.permanent && !watch.connected_before)
			fail("%s", watch.connection.error.data);
		if (watch.failures == 0)
			report(REPORT_WARNING, "disconnected", "%s", watch.connection.error.data);
		pause = BACKOFF_LEAST << clock_earlier(watch.failures++, 8);
		usleep(clock_jittered(clock_earlier(pause, BACKOFF_MOST)));
	}
}
