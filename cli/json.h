/*-------------------------------------------------------------------------
 *
 * json.h
 *	  Strings in JSON.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEADERCTL_JSON_H
#define LEADERCTL_JSON_H

#include "pqexpbuffer.h"

extern void append_json_string(PQExpBuffer buffer, const char *string);
extern void append_json_words(PQExpBuffer buffer, const char *string);

#endif							/* LEADERCTL_JSON_H */
