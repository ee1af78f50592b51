/*-------------------------------------------------------------------------
 *
 * json.c
 *	  Strings in JSON, written as the server writes them, so that a name can be
 *	  compared with one in the payload of a notification.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

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

/* With the quotes around it */
void
append_json_string(PQExpBuffer buffer, const char *string)
{
	appendPQExpBufferChar(buffer, '"');
	for (const char *c = string; *c; c++)
		append_json_char(buffer, *c);
	appendPQExpBufferChar(buffer, '"');
}
