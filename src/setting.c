/*-------------------------------------------------------------------------
 *
 * setting.c
 *	  The setting leader_election.fence: tokens that a session presents.
 *
 * Grammar: items "name=epoch" separated by commas, spaces around names and
 * numbers ignored.  A name with a space, comma, equals sign or double quote
 * in it is written in double quotes, a quote inside doubled.  The empty
 * string presents nothing: PostgreSQL leaves it behind after SET LOCAL.
 *
 * The parsed form is one block of memory, as the GUC machinery frees it by
 * one call: a count, then for each token its epoch and the name, in the order
 * of the names.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "parser/scansup.h"

#include "compat.h"
#include "leader_election.h"
#include "setting.h"

/* More have to be presented by leader_fence(). */
#define MAX_TOKENS	1000

typedef struct SettingToken
{
	int64		epoch;
	char		election[LE_NAME_MAX + 1];
} SettingToken;

typedef struct Tokens
{
	int			count;
	SettingToken tokens[FLEXIBLE_ARRAY_MEMBER];
} Tokens;

static const Tokens *current = NULL;

static const char *
skip_spaces(const char *p)
{
	while (scanner_isspace(*p))
		p++;
	return p;
}

/* Reads a name; returns what follows it, NULL if it is malformed. */
static const char *
parse_name(const char *p, char *name)
{
	int			len = 0;
	bool		quoted = *p == '"';

	if (quoted)
		p++;
	for (;; p++)
	{
		if (quoted && p[0] == '"')
		{
			if (p[1] != '"')
				break;
			p++;
		}
		else if (!quoted && (*p == '=' || *p == ',' || *p == '"' ||
							 scanner_isspace(*p)))
			break;
		if (*p == '\0' || len == LE_NAME_MAX)
			return NULL;
		name[len++] = *p;
	}
	name[len] = '\0';
	return len == 0 ? NULL : quoted ? p + 1 : p;
}

/* Reads an epoch; returns what follows it, NULL if it is malformed. */
static const char *
parse_epoch(const char *p, int64 *epoch)
{
	const char *start = p;

	*epoch = 0;
	for (; *p >= '0' && *p <= '9'; p++)
	{
		*epoch = *epoch * 10 + (*p - '0');
		if (*epoch >= LE_EPOCH_LIMIT)
			return NULL;
	}
	return p == start || *epoch == 0 ? NULL : p;
}

/* Reads one item; returns the comma or the end behind it, NULL if malformed. */
static const char *
parse_item(const char *p, SettingToken *token)
{
	p = parse_name(skip_spaces(p), token->election);
	if (p == NULL)
		return NULL;
	p = skip_spaces(p);
	if (*p != '=')
		return NULL;
	p = parse_epoch(skip_spaces(p + 1), &token->epoch);
	if (p == NULL)
		return NULL;
	p = skip_spaces(p);
	return *p == ',' || *p == '\0' ? p : NULL;
}

static int
compare_tokens(const void *a, const void *b)
{
	return strcmp(((const SettingToken *) a)->election,
				  ((const SettingToken *) b)->election);
}

/* Fills tokens, which has room for all items, in order; false if malformed. */
static bool
parse_tokens(const char *p, Tokens *tokens)
{
	for (;;)
	{
		p = parse_item(p, &tokens->tokens[tokens->count]);
		if (p == NULL)
			return false;
		tokens->count++;
		if (*p == '\0')
			break;
		p++;
	}
	qsort(tokens->tokens, tokens->count, sizeof(SettingToken), compare_tokens);
	for (int i = 1; i < tokens->count; i++)
	{
		if (compare_tokens(&tokens->tokens[i - 1], &tokens->tokens[i]) == 0)
			return false;
	}
	return true;
}

bool
le_setting_check(char **newval, void **extra, GucSource source)
{
	const char *text = skip_spaces(*newval ? *newval : "");
	Size		room = 1;
	Tokens	   *tokens;

	*extra = NULL;
	if (*text == '\0')
		return true;

	for (const char *p = text; *p; p++)
		room += *p == ',';
	if (room > MAX_TOKENS)
	{
		GUC_check_errdetail("At most %d fencing tokens can be presented.",
							MAX_TOKENS);
		return false;
	}
	tokens = le_guc_malloc(offsetof(Tokens, tokens) + room * sizeof(SettingToken));
	if (tokens == NULL)
		return false;
	tokens->count = 0;
	if (!parse_tokens(text, tokens))
	{
		le_guc_free(tokens);
		GUC_check_errdetail("Fencing tokens are written as election=epoch, each election once, separated by commas.");
		GUC_check_errhint("Put a name with spaces, commas, equals signs or quotes into double quotes.");
		return false;
	}
	*extra = tokens;
	return true;
}

void
le_setting_assign(const char *newval, void *extra)
{
	current = extra;
	le_generation++;
}

int64
le_setting_epoch(const char *election)
{
	int			low = 0;
	int			high = current ? current->count : 0;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;
		int			order = strcmp(election, current->tokens[middle].election);

		if (order == 0)
			return current->tokens[middle].epoch;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return 0;
}
