/*-------------------------------------------------------------------------
 *
 * wire.h
 *		Connections to etcd, calls, and the fields of messages.
 *
 *-------------------------------------------------------------------------
 */
#ifndef WIRE_H
#define WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Buffer
{
	uint8_t		data[4096];
	size_t		len;
} Buffer;

typedef struct Connection
{
	int			fd;
	int			id;
	uint32_t	stream;			/* of the newest call */
	Buffer		in;				/* received and not yet understood */
	Buffer		message;		/* of the newest call, as far as received */
	bool		ended;			/* the newest call has ended */
	bool		deleting;		/* in the second half of "term" */
	int64_t		lease;
	int64_t		revision;		/* that created our key */
	char		key[32];
	long		done;
} Connection;

extern const char *socket_path;

extern void die(const char *what);
extern double monotonic(void);
extern void add_bytes(Buffer *b, const void *bytes, size_t len);
extern void add_number(Buffer *b, int field, uint64_t value);
extern void add_string(Buffer *b, int field, const char *s);
extern void add_message(Buffer *b, int field, const Buffer *sub);
extern bool find_field(const uint8_t *p, size_t len, int field, uint64_t *number, const uint8_t **sub, size_t *sublen);
extern uint64_t number_of(const Buffer *message, int field);
extern int64_t revision_of(const Buffer *message);
extern void send_all(Connection *c, const Buffer *b);
extern void add_grpc(Buffer *b, Connection *c, const Buffer *message, int flags);
extern void call(Connection *c, const char *path, const Buffer *message, bool last);
extern void receive(Connection *c);
extern bool message_complete(Connection *c);
extern void await(Connection *c, bool end);
extern Connection *connect_to_server(int id);

#endif
