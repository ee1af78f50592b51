/*-------------------------------------------------------------------------
 *
 * show.c
 *	  leaderctl status and history: views of the server's, for people or as JSON.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "once.h"
#include "report.h"
#include "show.h"

/* Characters, not bytes, as far as a terminal shows them so */
static int
width(const char *words)
{
	int			n = 0;

	for (; *words; words++)
		n += (*words & 0xC0) != 0x80;
	return n;
}

static void
print_cell(const char *words, int cell, bool last)
{
	printf("%s%*s", words, last ? 0 : cell - width(words) + 2, "");
}

static void
print_table(const PGresult *rows)
{
	int			columns = PQnfields(rows);
	int		   *cells = calloc(columns, sizeof(int));

	if (cells == NULL)
		fail("out of memory");
	for (int column = 0; column < columns; column++)
	{
		cells[column] = width(PQfname(rows, column));
		for (int row = 0; row < PQntuples(rows); row++)
		{
			int			cell = width(PQgetvalue(rows, row, column));

			cells[column] = cell > cells[column] ? cell : cells[column];
		}
	}
	for (int row = -1; row < PQntuples(rows); row++)
	{
		for (int column = 0; column < columns; column++)
			print_cell(row < 0 ? PQfname(rows, column) : PQgetvalue(rows, row, column),
					   cells[column], column == columns - 1);
		putchar('\n');
	}
	free(cells);
}

static void
print_lines(const PGresult *rows)
{
	for (int row = 0; row < PQntuples(rows); row++)
		puts(PQgetvalue(rows, row, 0));
}

static int
show(const Options *options, Target *target, const char *sql, const char *json_sql,
	 int n, const char *const *values)
{
	const PGresult *rows;
	Connection	c;

	connection_init(&c, target, false, NULL);
	rows = ask_once(&c, options->json ? json_sql : sql, n, values);
	if (options->json)
		print_lines(rows);
	else
		print_table(rows);
	if (options->election && PQntuples(rows) == 0)
	{
		report_about(options->election);
		report(REPORT_WARNING, "unknown", "there is no such election, or nothing to show of it");
	}
	connection_close(&c);
	finish_output();
	return 0;
}

#define STATUS_ROWS \
	" FROM %s.leader_status s" \
	" WHERE $1::pg_catalog.text IS NULL OR election OPERATOR(pg_catalog.=) $1" \
	" ORDER BY election COLLATE pg_catalog.\"C\" USING OPERATOR(pg_catalog.<)"

int
show_status(const Options *options, Target *target)
{
	const char *values[] = {options->election};

	return show(options, target,
				"SELECT election, state, leader, epoch, kind, paused, expires_in, acquired_at"
				STATUS_ROWS,
				"SELECT pg_catalog.row_to_json(s)" STATUS_ROWS, 1, values);
}

#define HISTORY_ROWS \
	" FROM (SELECT epoch, leader, acquired_at, ended_at, end_reason FROM %s.leader_term" \
	" WHERE election OPERATOR(pg_catalog.=) $1" \
	" ORDER BY epoch USING OPERATOR(pg_catalog.>) LIMIT $2::pg_catalog.int8) t" \
	" ORDER BY epoch USING OPERATOR(pg_catalog.<)"

int
show_history(const Options *options, Target *target)
{
	const char *values[] = {options->election, options->lines};

	return show(options, target, "SELECT *" HISTORY_ROWS,
				"SELECT pg_catalog.row_to_json(t)" HISTORY_ROWS, 2, values);
}
