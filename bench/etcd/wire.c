/*-------------------------------------------------------------------------
 *
 * wire.c
 *		gRPC, as far as client.c needs it, with as little work as can be: the
 *		messages are small, and each is sent in one write.
 *
 *		Of HTTP/2 this means: headers are sent as literals, those received are
 *		not decoded (a call that fails has no message, which ends the program),
 *		and the windows that we grant are as large as can be, so that they need
 *		no care; what we send never fills the server's, as each client waits for
 *		its answer.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include "wire.h"

/* Frames of HTTP/2 */
enum
{
	FRAME_DATA = 0, FRAME_HEADERS = 1, FRAME_RST_STREAM = 3,
	FRAME_SETTINGS = 4, FRAME_PING = 6, FRAME_GOAWAY = 7,
	FRAME_WINDOW_UPDATE = 8
};

#define FLAG_END_STREAM 1		/* of DATA and HEADERS */
#define FLAG_ACK 1				/* of SETTINGS and PING */
#define FLAG_END_HEADERS 4

void
die(const char *what)
{
	fprintf(stderr, "etcd client: %s\n", what);
	exit(1);
}

double
monotonic(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/*
 * Protocol buffers
 */

void
add_bytes(Buffer *b, const void *bytes, size_t len)
{
	if (b->len + len > sizeof(b->data))
		die("a message is too long");
	memcpy(b->data + b->len, bytes, len);
	b->len += len;
}

static void
add_varint(Buffer *b, uint64_t value)
{
	uint8_t		byte;

	do
	{
		byte = (value & 0x7f) | (value > 0x7f ? 0x80 : 0);
		add_bytes(b, &byte, 1);
		value >>= 7;
	} while (value);
}

void
add_number(Buffer *b, int field, uint64_t value)
{
	add_varint(b, field << 3);
	add_varint(b, value);
}

void
add_string(Buffer *b, int field, const char *s)
{
	add_varint(b, field << 3 | 2);
	add_varint(b, strlen(s));
	add_bytes(b, s, strlen(s));
}

void
add_message(Buffer *b, int field, const Buffer *sub)
{
	add_varint(b, field << 3 | 2);
	add_varint(b, sub->len);
	add_bytes(b, sub->data, sub->len);
}

static uint64_t
read_varint(const uint8_t **p, const uint8_t *end)
{
	uint64_t	value = 0;

	for (int shift = 0; *p < end && shift < 64; shift += 7)
	{
		uint8_t		byte = *(*p)++;

		value |= (uint64_t) (byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return value;
	}
	die("a message ends too early");
	return 0;
}

/*
 * The value of a number field, or where a submessage lies; false if there is
 * none.  The first one counts.
 */
bool
find_field(const uint8_t *p, size_t len, int field, uint64_t *number,
		   const uint8_t **sub, size_t *sublen)
{
	const uint8_t *end = p + len;

	while (p < end)
	{
		uint64_t	tag = read_varint(&p, end);
		uint64_t	value = read_varint(&p, end);

		if ((tag & 7) == 0)
		{
			if (tag >> 3 == field && number)
			{
				*number = value;
				return true;
			}
			continue;
		}
		if ((tag & 7) != 2 || value > end - p)
			die("a message of an unknown form");
		if (tag >> 3 == field && sub)
		{
			*sub = p;
			*sublen = value;
			return true;
		}
		p += value;
	}
	return false;
}

uint64_t
number_of(const Buffer *message, int field)
{
	uint64_t	value = 0;

	/* gRPC puts five bytes before each message. */
	find_field(message->data + 5, message->len - 5, field, &value, NULL, NULL);
	return value;
}

/* The revision in an answer's header */
int64_t
revision_of(const Buffer *message)
{
	const uint8_t *header;
	size_t		len;
	uint64_t	revision = 0;

	if (find_field(message->data + 5, message->len - 5, 1, NULL, &header, &len))
		find_field(header, len, 3, &revision, NULL, NULL);
	return revision;
}

/*
 * HTTP/2
 */

static void
add_frame(Buffer *b, int type, int flags, uint32_t stream, const void *payload,
		  size_t len)
{
	uint8_t		head[9] = {len >> 16, len >> 8, len, type, flags,
	stream >> 24, stream >> 16, stream >> 8, stream};

	add_bytes(b, head, 9);
	add_bytes(b, payload, len);
}

void
send_all(Connection *c, const Buffer *b)
{
	if (send(c->fd, b->data, b->len, MSG_NOSIGNAL) != (ssize_t) b->len)
		die("cannot send");
}

void
add_grpc(Buffer *b, Connection *c, const Buffer *message, int flags)
{
	Buffer		data = {.len = 5};

	for (int i = 0; i < 5; i++)
		data.data[i] = i ? message->len >> (8 * (4 - i)) : 0;
	add_bytes(&data, message->data, message->len);
	add_frame(b, FRAME_DATA, flags, c->stream, data.data, data.len);
}

/* Begins a call; "last" if no other message will follow in its stream. */
void
call(Connection *c, const char *path, const Buffer *message, bool last)
{
	Buffer		headers = {.len = 0};
	Buffer		out = {.len = 0};
	uint8_t		len = strlen(path);

	/* :method POST, :scheme http, :path, :authority, content-type, te */
	add_bytes(&headers, "\x83\x86\x04", 3);
	add_bytes(&headers, &len, 1);
	add_bytes(&headers, path, len);
	add_bytes(&headers, "\x01\x09localhost", 11);
	add_bytes(&headers, "\x0f\x10\x10" "application/grpc", 19);
	add_bytes(&headers, "\x00\x02te\x08trailers", 13);

	c->stream += c->stream ? 2 : 1;
	c->message.len = 0;
	c->ended = false;
	add_frame(&out, FRAME_HEADERS, FLAG_END_HEADERS, c->stream, headers.data,
			  headers.len);
	add_grpc(&out, c, message, last ? FLAG_END_STREAM : 0);
	send_all(c, &out);
}

static void
take_frame(Connection *c, int type, int flags, uint32_t stream,
		   const uint8_t *payload, size_t len)
{
	Buffer		out = {.len = 0};

	switch (type)
	{
		case FRAME_DATA:
			if (stream == c->stream)
				add_bytes(&c->message, payload, len);
			break;
		case FRAME_SETTINGS:
		case FRAME_PING:
			if (flags & FLAG_ACK)
				return;
			add_frame(&out, type, FLAG_ACK, 0, payload,
					  type == FRAME_PING ? len : 0);
			send_all(c, &out);
			return;
		case FRAME_RST_STREAM:
			/* The stream of an earlier call was not closed by us. */
			if (stream == c->stream)
				die("the server has ended a call");
			return;
		case FRAME_GOAWAY:
			die("the server has ended a connection");
	}
	if ((type == FRAME_DATA || type == FRAME_HEADERS) &&
		(flags & FLAG_END_STREAM) && stream == c->stream)
		c->ended = true;
}

void
receive(Connection *c)
{
	size_t		at = 0;
	ssize_t		n = recv(c->fd, c->in.data + c->in.len,
						 sizeof(c->in.data) - c->in.len, 0);

	if (n <= 0)
		die("the server has closed a connection");
	c->in.len += n;
	while (c->in.len - at >= 9)
	{
		uint8_t    *head = c->in.data + at;
		size_t		len = head[0] << 16 | head[1] << 8 | head[2];

		if (c->in.len - at < 9 + len)
			break;
		take_frame(c, head[3], head[4],
				   (head[5] & 0x7f) << 24 | head[6] << 16 | head[7] << 8 | head[8],
				   head + 9, len);
		at += 9 + len;
	}
	if (at == 0 && c->in.len == sizeof(c->in.data))
		die("a frame is too long");
	memmove(c->in.data, c->in.data + at, c->in.len - at);
	c->in.len -= at;
}

bool
message_complete(Connection *c)
{
	const uint8_t *p = c->message.data;

	return c->message.len >= 5 && c->message.len >=
		5 + ((size_t) p[1] << 24 | p[2] << 16 | p[3] << 8 | p[4]);
}

/* Waits for the end of a call, or for a message of one that goes on. */
void
await(Connection *c, bool end)
{
	while (end ? !c->ended : !message_complete(c))
	{
		if (c->ended)
			die("a call has failed");
		receive(c);
	}
	if (!message_complete(c))
		die("a call has failed");
}

Connection *
connect_to_server(int id)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	Connection *c = calloc(1, sizeof(Connection));
	Buffer		out = {.len = 0};

	c->id = id;
	snprintf(c->key, sizeof(c->key), "term %d", id);
	c->fd = socket(AF_UNIX, SOCK_STREAM, 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", socket_path);
	if (connect(c->fd, (struct sockaddr *) &address, sizeof(address)) != 0)
		die(strerror(errno));
	add_bytes(&out, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
	/* The initial window of a stream, then that of the connection. */
	add_frame(&out, FRAME_SETTINGS, 0, 0, "\0\4\x7f\xff\xff\xff", 6);
	add_frame(&out, FRAME_WINDOW_UPDATE, 0, 0, "\x7f\xff\0\0", 4);
	send_all(c, &out);
	return c;
}
