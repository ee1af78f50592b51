/*-------------------------------------------------------------------------
 *
 * questions.c
 *	  What leaderctl asks the server for, and the answers.
 *
 * Each question is one statement without state in the session, so that it works
 * through a transaction pooler, and names all it needs by schema, whatever the
 * search_path is.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <math.h>

#include "questions.h"

#define ANSWER_COLUMNS \
	"SELECT is_leader, epoch, leader, extract(epoch FROM expires_in)," \
	" extract(epoch FROM step_down_after), extract(epoch FROM retry_after)"

/* In "sql", %s is the extension's schema.  The connection is idle. */
void
ask(Connection *c, const char *sql, int n, const char *const *values, int64 deadline)
{
	PQExpBufferData statement;

	initPQExpBuffer(&statement);
	for (; *sql; sql++)
	{
		if (sql[0] == '%' && sql[1] == 's')
		{
			appendPQExpBufferStr(&statement, c->schema);
			sql++;
		}
		else
			appendPQExpBufferChar(&statement, *sql);
	}
	connection_ask(c, statement.data, n, values, deadline);
	termPQExpBuffer(&statement);
}

/* Acquires, or renews what this holder has already */
void
ask_for_bid(Connection *c, const Candidacy *candidacy, int64 deadline)
{
	const char *values[] = {
		candidacy->election, candidacy->holder, candidacy->ttl, candidacy->metadata
	};

	if (candidacy->session)
		ask(c, ANSWER_COLUMNS " FROM %s.leader_acquire_session($1, $2,"
			" $3::pg_catalog.interval, metadata => $4::pg_catalog.jsonb)", 4, values, deadline);
	else
		ask(c, ANSWER_COLUMNS " FROM %s.leader_acquire($1, $2,"
			" $3::pg_catalog.interval, metadata => $4::pg_catalog.jsonb)", 4, values, deadline);
}

void
ask_for_renewal(Connection *c, const Candidacy *candidacy, int64 epoch, int64 deadline)
{
	char		number[32];
	const char *values[] = {candidacy->election, number};

	snprintf(number, sizeof(number), "%lld", (long long) epoch);
	ask(c, ANSWER_COLUMNS " FROM %s.leader_renew($1, $2::pg_catalog.int8)", 2, values, deadline);
}

static bool
read_bool(const PGresult *result, int column)
{
	return !PQgetisnull(result, 0, column) && PQgetvalue(result, 0, column)[0] == 't';
}

static int64
read_seconds(const PGresult *result, int column)
{
	if (PQgetisnull(result, 0, column))
		return -1;
	return llround(strtod(PQgetvalue(result, 0, column), NULL) * CLOCK_SECOND);
}

/* A row is there: the functions return exactly one. */
Answer
read_answer(const PGresult *result)
{
	return (Answer)
	{
		.is_leader = read_bool(result, 0),
			.epoch = strtoll(PQgetvalue(result, 0, 1), NULL, 10),
			.leader = PQgetisnull(result, 0, 2) ? NULL : PQgetvalue(result, 0, 2),
			.expires_in = read_seconds(result, 3),
			.step_down_after = read_seconds(result, 4),
			.retry_after = read_seconds(result, 5),
	};
}

/* Looks without asking for anything */
void
ask_whether_free(Connection *c, const char *election, int64 deadline)
{
	const char *values[] = {election};

	ask(c, "SELECT state, extract(epoch FROM expires_in), leader FROM %s.leader_status"
		" WHERE election OPERATOR(pg_catalog.=) $1", 1, values, deadline);
}

/*
 * "expires_in" is -1 where no time is known; "leader" lives as long as the result.
 * One that we may not see we may not lead either: to be told so, we have to ask.
 */
bool
read_whether_free(const PGresult *result, const char **leader, int64 *expires_in)
{
	const char *state;

	*expires_in = -1;
	*leader = NULL;

	/* Nobody has ever asked for it. */
	if (PQntuples(result) == 0)
		return true;
	state = PQgetvalue(result, 0, 0);
	*expires_in = read_seconds(result, 1);
	if (!PQgetisnull(result, 0, 2))
		*leader = PQgetvalue(result, 0, 2);
	return strcmp(state, "free") == 0 || strcmp(state, "expired") == 0 || *state == '\0';
}

/*
 * By the holder's name, which is ours alone: so it also gives back a term whose
 * grant we were never told of.
 */
void
ask_for_release(Connection *c, const Candidacy *candidacy, int64 deadline)
{
	const char *values[] = {candidacy->election, candidacy->holder};

	ask(c, "SELECT %s.leader_release(election, epoch) FROM %s.leader_status"
		" WHERE election OPERATOR(pg_catalog.=) $1 AND leader OPERATOR(pg_catalog.=) $2",
		2, values, deadline);
}

/* Whether there was something to give back */
bool
read_release(const PGresult *result)
{
	return PQntuples(result) == 1 && read_bool(result, 0);
}
