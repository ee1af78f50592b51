/*-------------------------------------------------------------------------
 *
 * once.c
 *	  One question, one answer: for those who have nothing else to do meanwhile.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "clock.h"
#include "once.h"
#include "questions.h"
#include "report.h"

#define CONNECT_TIME	(10 * CLOCK_SECOND)

/* A depose may have to wait for the end of a session, and for its lock. */
#define ANSWER_TIME		(30 * CLOCK_SECOND)

/*
 * Connects if need be.  In "sql", %s is the extension's schema.  The answer lives
 * until the next question.  A failure ends the program.
 */
const PGresult *
ask_once(Connection *c, const char *sql, int n, const char *const *values)
{
	/* Each host may take its time. */
	for (int attempts = target_hosts(c->target); c->state == CONN_DOWN; attempts--)
	{
		if (connection_wait_open(c, clock_now() + CONNECT_TIME) != CONN_MADE && attempts <= 1)
			fail("%s", c->error.data);
	}
	ask(c, sql, n, values, clock_now() + ANSWER_TIME);
	if (connection_wait(c) != CONN_ANSWERED)
		fail("%s", c->error.data);
	return c->result;
}
