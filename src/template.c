/*-------------------------------------------------------------------------
 *
 * template.c
 *	  The election of a row: a name in which columns of the row may stand.
 *
 * Grammar: a column stands in braces, written as in SQL: folded to lower case
 * unless in double quotes.  A brace that is meant is doubled.
 *
 * Values must become the same text in every session: only types are taken whose
 * output no setting changes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "nodes/pg_list.h"
#include "parser/scansup.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/uuid.h"

#include "arguments.h"
#include "leader_election.h"
#include "template.h"

/* A piece of text, and the column that follows it, if any */
typedef struct Piece
{
	char	   *text;
	char	   *name;			/* of the column, or NULL */
	int			column;			/* its number */
	Oid			type;
} Piece;

struct LeTemplate
{
	List	   *pieces;			/* of Piece */
	char	   *constant;		/* the whole name, if there is no column */
};

static bool
is_identifier_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		(c >= '0' && c <= '9') || c == '_' || c == '$' || IS_HIGHBIT_SET(c);
}

/* Reads an identifier in double quotes; p moves behind it, NULL if unclosed. */
static char *
parse_quoted(const char **p)
{
	StringInfoData name;
	const char *c;

	initStringInfo(&name);
	for (c = *p + 1; *c != '\0'; c++)
	{
		if (*c == '"' && *++c != '"')
		{
			*p = c;
			return name.data;
		}
		appendStringInfoChar(&name, *c);
	}
	return NULL;
}

/* Reads a column in braces; p moves behind it, NULL if malformed. */
static char *
parse_column(const char **p)
{
	const char *start = ++*p;
	char	   *name;

	if (*start == '"')
		name = parse_quoted(p);
	else
	{
		while (is_identifier_char(**p))
			(*p)++;
		name = downcase_truncate_identifier(start, *p - start, false);
	}
	if (name == NULL || *name == '\0' || **p != '}')
		return NULL;
	++*p;
	return name;
}

/* Reads one piece; p moves behind it, NULL if malformed. */
static Piece *
parse_piece(const char **p)
{
	Piece	   *piece = palloc0(sizeof(Piece));
	StringInfoData literal;

	initStringInfo(&literal);
	for (; **p != '\0'; ++*p)
	{
		if (**p == '{' || **p == '}')
		{
			if ((*p)[0] != (*p)[1])
				break;
			(*p)++;
		}
		appendStringInfoChar(&literal, **p);
	}
	piece->text = literal.data;
	if (**p == '{')
	{
		piece->name = parse_column(p);
		return piece->name ? piece : NULL;
	}
	return **p == '}' ? NULL : piece;
}

/* NULL if malformed */
static LeTemplate *
parse(const char *p)
{
	LeTemplate *template = palloc0(sizeof(LeTemplate));
	Piece	   *piece;

	do
	{
		piece = parse_piece(&p);
		if (piece == NULL)
			return NULL;
		template->pieces = lappend(template->pieces, piece);
	} while (*p != '\0');

	piece = linitial(template->pieces);
	if (piece->name == NULL)
		template->constant = piece->text;
	return template;
}

/* Can values of the type stand in a name, and do all sessions write them alike? */
static bool
type_fits(Oid type)
{
	return type == INT2OID || type == INT4OID || type == INT8OID ||
		type == TEXTOID || type == VARCHAROID || type == NAMEOID ||
		type == UUIDOID;
}

static Form_pg_attribute
get_attribute(const Piece *piece, Relation rel)
{
	return TupleDescAttr(RelationGetDescr(rel), piece->column - 1);
}

/* Sets the number and type of a column; false if there is none of that name. */
static bool
find_column(Piece *piece, Relation rel)
{
	piece->column = SPI_fnumber(RelationGetDescr(rel), piece->name);
	if (piece->column <= 0)
		return false;
	piece->type = get_attribute(piece, rel)->atttypid;
	return true;
}

/* Columns that are computed are computed after the fence. */
static bool
column_fits(const Piece *piece, Relation rel)
{
	return type_fits(piece->type) &&
		get_attribute(piece, rel)->attgenerated == '\0';
}

static void
require_column(Piece *piece, Relation rel)
{
	if (!find_column(piece, rel))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of relation \"%s\" does not exist",
						piece->name, RelationGetRelationName(rel)),
				 errdetail("It stands in the name of the election that protects the table.")));
	if (!column_fits(piece, rel))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column \"%s\" of relation \"%s\" cannot stand in the name of an election",
						piece->name, RelationGetRelationName(rel)),
				 type_fits(piece->type) ?
				 errdetail("It is a generated column.") :
				 errdetail("Its type is %s.", format_type_be(piece->type)),
				 errhint("Columns of type smallint, integer, bigint, text, varchar, name and uuid can, if they are stored as given.")));
}

LeTemplate *
le_template_parse(const char *text, Relation rel)
{
	LeTemplate *template = parse(text);
	ListCell   *lc;

	if (template == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid name of election \"%s\" for a table", text),
				 errdetail("A brace does not belong to the name of a column in braces."),
				 errhint("Columns stand in braces, such as shard/{shard_id}; a brace that is meant is doubled.")));
	if (template->constant)
		le_check_name(template->constant, "election");
	foreach(lc, template->pieces)
	{
		Piece	   *piece = lfirst(lc);

		if (piece->name)
			require_column(piece, rel);
	}
	return template;
}

bool
le_template_fits(const char *text, Relation rel)
{
	LeTemplate *template = parse(text);
	ListCell   *lc;

	if (template == NULL ||
		(template->constant && !le_name_is_valid(template->constant)))
		return false;
	foreach(lc, template->pieces)
	{
		Piece	   *piece = lfirst(lc);

		if (piece->name &&
			(!find_column(piece, rel) || !column_fits(piece, rel)))
			return false;
	}
	return true;
}

const char *
le_template_constant(const LeTemplate *template)
{
	return template->constant;
}

/* Appends bytes, of which those that do not fit are only counted. */
static int
append(char *name, int used, const char *bytes, int length)
{
	if (used < LE_NAME_MAX)
		memcpy(name + used, bytes, Min(length, LE_NAME_MAX - used));
	return used + length;
}

static int
append_value(char *name, int used, Datum value, Oid type)
{
	char		number[MAXINT8LEN + 1];
	char	   *uuid;

	switch (type)
	{
		case INT2OID:
			return append(name, used, number,
						  pg_lltoa(DatumGetInt16(value), number));
		case INT4OID:
			return append(name, used, number,
						  pg_lltoa(DatumGetInt32(value), number));
		case INT8OID:
			return append(name, used, number,
						  pg_lltoa(DatumGetInt64(value), number));
		case NAMEOID:
			return append(name, used, NameStr(*DatumGetName(value)),
						  strlen(NameStr(*DatumGetName(value))));
		case UUIDOID:
			uuid = DatumGetCString(DirectFunctionCall1(uuid_out, value));
			used = append(name, used, uuid, strlen(uuid));
			pfree(uuid);
			return used;
		default:
			{
				text	   *packed = DatumGetTextPP(value);

				used = append(name, used, VARDATA_ANY(packed),
							  VARSIZE_ANY_EXHDR(packed));
				if ((Pointer) packed != DatumGetPointer(value))
					pfree(packed);
				return used;
			}
	}
}

static void
column_is_null(const Piece *piece, Relation rel)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("null value in column \"%s\" of relation \"%s\" names no election",
					piece->name, RelationGetRelationName(rel)),
			 errdetail("The column stands in the name of the election that protects the row.")));
}

Size
le_template_expand(const LeTemplate *template, HeapTuple row, Relation rel,
				   char *name)
{
	int			used = 0;
	ListCell   *lc;

	foreach(lc, template->pieces)
	{
		Piece	   *piece = lfirst(lc);

		used = append(name, used, piece->text, strlen(piece->text));
		if (piece->name)
		{
			bool		isnull;
			Datum		value = heap_getattr(row, piece->column,
											 RelationGetDescr(rel), &isnull);

			if (isnull)
				column_is_null(piece, rel);
			used = append_value(name, used, value, piece->type);
		}
	}
	if (used > LE_NAME_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("name of the election of a row of table \"%s\" is too long",
						RelationGetRelationName(rel)),
				 errdetail("A name has 1 to %d bytes, this one has %d.",
						   LE_NAME_MAX, used)));
	name[used] = '\0';
	return used;
}
