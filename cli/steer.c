/*-------------------------------------------------------------------------
 *
 * steer.c
 *	  leaderctl depose, pause and resume.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "json.h"
#include "once.h"
#include "report.h"
#include "steer.h"

/* {"election": "closing", NAME: VALUE} */
static void
print_json(const Options *options, const char *name, const char *value)
{
	PQExpBufferData line;

	initPQExpBuffer(&line);
	append_json_words(&line, options->election);
	printf("{\"election\": %s, \"%s\": %s}\n", line.data, name, value);
	termPQExpBuffer(&line);
}

/* To steer what does not exist is a mistake in the name. */
static void
check_exists(Connection *c, const Options *options)
{
	const char *values[] = {options->election};

	if (PQntuples(ask_once(c, "SELECT FROM %s.leader_status WHERE election OPERATOR(pg_catalog.=) $1",
						   1, values)) == 0)
		fail("there is no such election");
}

int
steer_depose(const Options *options, Target *target)
{
	const char *values[] = {options->election};
	const PGresult *result;
	Connection	c;
	bool		deposed;

	report_about(options->election);
	connection_init(&c, target, false, NULL);
	check_exists(&c, options);
	result = ask_once(&c, "SELECT %s.leader_depose($1)", 1, values);
	deposed = !PQgetisnull(result, 0, 0);
	if (options->json)
		print_json(options, "epoch", deposed ? PQgetvalue(result, 0, 0) : "null");
	else if (deposed)
		printf("%s\n", PQgetvalue(result, 0, 0));
	finish_output();
	report(REPORT_INFO, "deposed", deposed ? "deposed; no leader has the epoch that was printed" :
		   "there was no leader");
	connection_close(&c);
	return 0;
}

int
steer_pause(const Options *options, Target *target)
{
	bool		pause = options->action == ACTION_PAUSE;
	const char *values[] = {options->election, pause ? "true" : "false"};
	Connection	c;

	report_about(options->election);
	connection_init(&c, target, false, NULL);
	check_exists(&c, options);
	ask_once(&c, "SELECT %s.leader_configure($1, paused => $2::pg_catalog.bool)", 2, values);
	if (options->json)
		print_json(options, "paused", values[1]);
	finish_output();
	report(REPORT_INFO, pause ? "paused" : "resumed", pause ?
		   "paused: no new term is granted, the current one goes on" : "resumed");
	connection_close(&c);
	return 0;
}
