/*-------------------------------------------------------------------------
 *
 * json.c
 *	  Strings in JSON.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "mb/pg_wchar.h"

#include "json.h"

static void
append_json_char(PQExpBuffer buffer, char c)
{
	static const char special[] = "\b\f\n\r\t\"\\";
	static const char letters[] = "bfnrt\"\\";
	const char *found = c ? strchr(special, c) : NULL;

	if (found)
		appendPQExpBuffer(buffer, "\\%c", letters[found - special]);
	else if ((unsigned char) c < ' ')
		appendPQExpBuffer(buffer, "\\u%04x", (unsigned char) c);
	else
		appendPQExpBufferChar(buffer, c);
}

/*
 * With the quotes around it, as the server writes it, so that it can be compared
 * with what is in the payload of a notification
 */
void
append_json_string(PQExpBuffer buffer, const char *string)
{
	appendPQExpBufferChar(buffer, '"');
	for (const char *c = string; *c; c++)
		append_json_char(buffer, *c);
	appendPQExpBufferChar(buffer, '"');
}

/* The same for those who expect UTF-8: what is not is replaced. */
void
append_json_words(PQExpBuffer buffer, const char *string)
{
	int			left = strlen(string);

	appendPQExpBufferChar(buffer, '"');
	while (left > 0)
	{
		int			length = pg_encoding_verifymbchar(PG_UTF8, string, left);

		if (length == 1)
			append_json_char(buffer, *string);
		else if (length > 1)
			appendBinaryPQExpBuffer(buffer, string, length);
		else
			appendPQExpBufferStr(buffer, "\\ufffd");
		length = length > 1 ? length : 1;
		string += length;
		left -= length;
	}
	appendPQExpBufferChar(buffer, '"');
}
