/*-------------------------------------------------------------------------
 *
 * arguments.c
 *	  Reads and checks the arguments of SQL functions.
 *
 * The functions are not STRICT: a NULL that slipped in would become a NULL
 * answer, which drivers read as false or trip over.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "arguments.h"
#include "clock.h"
#include "compat.h"
#include "leader_election.h"

static void
require_not_null(FunctionCallInfo fcinfo, int n, const char *what)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", what)));
}

/* ASCII controls, and in UTF-8 those of Latin-1 too */
static bool
has_control_character(const char *name)
{
	bool		utf8 = GetDatabaseEncoding() == PG_UTF8;

	for (const unsigned char *p = (const unsigned char *) name; *p; p++)
	{
		if (*p < 0x20 || *p == 0x7f)
			return true;
		if (utf8 && p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f)
			return true;
	}
	return false;
}

bool
le_name_is_valid(const char *name)
{
	return *name != '\0' && strlen(name) <= LE_NAME_MAX &&
		!has_control_character(name);
}

void
le_check_name(const char *name, const char *what)
{
	Size		length = strlen(name);

	if (length == 0 || length > LE_NAME_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid name of %s", what),
				 errdetail("A name has 1 to %d bytes, this one has %zu.",
						   LE_NAME_MAX, length)));
	if (has_control_character(name))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid name of %s", what),
				 errdetail("A name has no control characters.")));
}

char *
le_arg_name(FunctionCallInfo fcinfo, int n, const char *what)
{
	char	   *name;

	require_not_null(fcinfo, n, what);
	name = text_to_cstring(PG_GETARG_TEXT_PP(n));
	le_check_name(name, what);
	return name;
}

int64
le_arg_epoch(FunctionCallInfo fcinfo, int n)
{
	require_not_null(fcinfo, n, "epoch");
	return PG_GETARG_INT64(n);
}

int64
le_arg_interval(FunctionCallInfo fcinfo, int n, int64 min, int64 max,
				int64 missing, const char *what)
{
	if (PG_ARGISNULL(n))
		return missing;
	return le_interval_to_us(PG_GETARG_INTERVAL_P(n), min, max, what);
}

Datum
le_arg_metadata(FunctionCallInfo fcinfo, int n, bool *isnull)
{
	Jsonb	   *jsonb;
	char	   *text;

	*isnull = PG_ARGISNULL(n);
	if (*isnull)
		return (Datum) 0;
	jsonb = PG_GETARG_JSONB_P(n);
	text = JsonbToCString(NULL, &jsonb->root, VARSIZE(jsonb));

	if (strlen(text) > LE_METADATA_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("metadata is too large"),
				 errdetail("As text it has %zu bytes, and may have %d.",
						   strlen(text), LE_METADATA_MAX)));
	pfree(text);
	return JsonbPGetDatum(jsonb);
}
