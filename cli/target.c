/*-------------------------------------------------------------------------
 *
 * target.c
 *	  Which servers to connect to, and how.
 *
 * All that libpq knows of is understood: connection strings and URIs, PG*
 * variables, services, several hosts.  What it would find out by itself is
 * looked up here, so that our own defaults give way to all of it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "libpq-fe.h"
#include "pqexpbuffer.h"

#include "report.h"
#include "target.h"

/* A server that does not answer is to be noticed in time. */
static const char *const defaults[][2] = {
	{"fallback_application_name", "leaderctl"},

	/* Names mean the same whatever the database's encoding is. */
	{"client_encoding", "UTF8"},
	{"keepalives_idle", "10"},
	{"keepalives_interval", "5"},
	{"keepalives_count", "3"},
	{"tcp_user_timeout", "15000"},
};

/* libpq's own test for what is more than a database's name */
static bool
is_connection_string(const char *dbname)
{
	return strncmp(dbname, "postgresql://", 13) == 0 ||
		strncmp(dbname, "postgres://", 11) == 0 ||
		strchr(dbname, '=') != NULL;
}

static PQconninfoOption *
find_option(PQconninfoOption *options, const char *keyword)
{
	for (; options->keyword; options++)
	{
		if (strcmp(options->keyword, keyword) == 0)
			return options;
	}
	return NULL;
}

static void
set_option(PQconninfoOption *options, const char *keyword, const char *value)
{
	PQconninfoOption *option = find_option(options, keyword);

	if (option == NULL)
		return;
	PQfreemem(option->val);
	option->val = strdup(value);
}

/* What the command line says */
static PQconninfoOption *
explicit_options(const TargetOptions *given)
{
	bool		string = given->dbname && is_connection_string(given->dbname);
	char	   *error = NULL;
	PQconninfoOption *options = PQconninfoParse(string ? given->dbname : "", &error);

	if (options == NULL)
		fail("%s", error ? error : "out of memory");
	if (given->dbname && !string)
		set_option(options, "dbname", given->dbname);
	if (given->host)
		set_option(options, "host", given->host);
	if (given->port)
		set_option(options, "port", given->port);
	if (given->user)
		set_option(options, "user", given->user);
	return options;
}

/*
 * What the environment says, and the service that the command line may name: libpq
 * looks it up only by a variable, which the command must not find changed.
 */
static PQconninfoOption *
default_options(PQconninfoOption *explicit)
{
	PQconninfoOption *service = find_option(explicit, "service");
	const char *variable = getenv("PGSERVICE");
	char	   *saved = variable ? strdup(variable) : NULL;
	PQconninfoOption *options;

	if (service && service->val)
		setenv("PGSERVICE", service->val, 1);
	options = PQconndefaults();
	if (options == NULL)
		fail("out of memory");
	if (saved)
		setenv("PGSERVICE", saved, 1);
	else
		unsetenv("PGSERVICE");
	free(saved);
	return options;
}

/*
 * "writable" asks for a primary, unless something else is asked for.  A failure
 * ends the program.
 */
void
target_make(Target *target, const TargetOptions *given, bool writable)
{
	PQconninfoOption *explicit = explicit_options(given);
	PQconninfoOption *options = default_options(explicit);
	PQconninfoOption *attrs;
	int			n = 0;

	for (PQconninfoOption *option = explicit; option->keyword; option++)
	{
		if (option->val)
			set_option(options, option->keyword, option->val);
	}
	for (size_t i = 0; i < sizeof(defaults) / sizeof(defaults[0]); i++)
	{
		PQconninfoOption *option = find_option(options, defaults[i][0]);

		if (option && option->val == NULL)
			set_option(options, defaults[i][0], defaults[i][1]);
	}

	/* libpq's default cannot be told from a variable that says the same. */
	attrs = find_option(explicit, "target_session_attrs");
	if (writable && (attrs == NULL || attrs->val == NULL))
	{
		attrs = find_option(options, "target_session_attrs");
		if (attrs && (attrs->val == NULL || strcmp(attrs->val, "any") == 0))
			set_option(options, "target_session_attrs", "read-write");
	}

	for (PQconninfoOption *option = options; option->keyword; option++)
		n++;
	target->keywords = calloc(n + 1, sizeof(char *));
	target->values = calloc(n + 1, sizeof(char *));
	if (target->keywords == NULL || target->values == NULL)
		fail("out of memory");
	n = 0;
	for (PQconninfoOption *option = options; option->keyword; option++)
	{
		if (option->val == NULL || option->val[0] == '\0')
			continue;
		target->keywords[n] = strdup(option->keyword);
		target->values[n++] = strdup(option->val);
	}
	PQconninfoFree(explicit);
	PQconninfoFree(options);
}

/* How many there are to choose from */
int
target_hosts(const Target *target)
{
	int			hosts = 1;

	for (int i = 0; target->keywords[i]; i++)
	{
		int			n = 1;

		if (strcmp(target->keywords[i], "host") != 0 && strcmp(target->keywords[i], "hostaddr") != 0)
			continue;
		for (const char *c = target->values[i]; *c; c++)
			n += *c == ',';
		hosts = n > hosts ? n : hosts;
	}
	return hosts;
}

/*
 * A host that does not answer must not keep us from the next one: libpq turns to
 * that only when a host has refused, or is left to its own waiting.  So the lists
 * are rotated, and the next attempt begins with another host.
 */
void
target_next_host(Target *target)
{
	static const char *const lists[] = {"host", "hostaddr", "port"};

	for (int i = 0; target->keywords[i]; i++)
	{
		const char *comma = strchr(target->values[i], ',');

		for (int list = 0; comma && list < 3; list++)
		{
			PQExpBufferData rotated;

			if (strcmp(target->keywords[i], lists[list]) != 0)
				continue;
			initPQExpBuffer(&rotated);
			appendPQExpBuffer(&rotated, "%s,%.*s", comma + 1,
							  (int) (comma - target->values[i]), target->values[i]);
			free((char *) target->values[i]);
			target->values[i] = rotated.data;
			break;
		}
	}
}
