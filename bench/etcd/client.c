/*-------------------------------------------------------------------------
 *
 * client.c
 *		What pgbench is for PostgreSQL, for etcd: clients that repeat one
 *		operation, each on a connection of its own.
 *
 *		client SOCKET THREADS CLIENTS COUNT OPERATION
 *		client SOCKET hand-over ROUNDS release|expiry
 *
 * Operations, each of them one round trip but the first:
 *
 *	term		a transaction that puts a key if there is none, and one that
 *				deletes it if it is still the same
 *	keepalive	of the client's lease, in a stream that stays open
 *	lose		the transaction of "term" for a key that is there
 *	check		a linearizable read of a key
 *	write		a transaction that puts another key if the leader's is unchanged
 *
 * Speaks gRPC by itself, with as little work as can be: the messages are small,
 * each is sent in one write, and what is received is looked at only as far as
 * needed to know that the operation has done what it should.  So the client
 * takes less of the processors from the server than any library would.
 *
 * Of HTTP/2 this means: headers are sent as literals, those received are not
 * decoded (a call that fails has no message, which ends the program), and the
 * windows that we grant are as large as can be, so that they need no care; what
 * we send never fills the server's, as each client waits for its answer.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define LEASE_SECONDS 3600
#define HAND_OVER_SECONDS 2		/* the shortest that etcd grants */

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

typedef struct Worker
{
	pthread_t	thread;
	Connection **clients;
	int			nclients;
} Worker;

static const char *socket_path;
static const char *operation;
static long count;
static pthread_barrier_t barrier;

static void
die(const char *what)
{
	fprintf(stderr, "etcd client: %s\n", what);
	exit(1);
}

static double
monotonic(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/*
 * Protocol buffers
 */

static void
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

static void
add_number(Buffer *b, int field, uint64_t value)
{
	add_varint(b, field << 3);
	add_varint(b, value);
}

static void
add_string(Buffer *b, int field, const char *s)
{
	add_varint(b, field << 3 | 2);
	add_varint(b, strlen(s));
	add_bytes(b, s, strlen(s));
}

static void
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
static bool
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

static uint64_t
number_of(const Buffer *message, int field)
{
	uint64_t	value = 0;

	/* gRPC puts five bytes before each message. */
	find_field(message->data + 5, message->len - 5, field, &value, NULL, NULL);
	return value;
}

/* The revision in an answer's header */
static int64_t
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

static void
send_all(Connection *c, const Buffer *b)
{
	if (send(c->fd, b->data, b->len, MSG_NOSIGNAL) != (ssize_t) b->len)
		die("cannot send");
}

static void
add_grpc(Buffer *b, Connection *c, const Buffer *message, int flags)
{
	Buffer		data = {.len = 5};

	for (int i = 0; i < 5; i++)
		data.data[i] = i ? message->len >> (8 * (4 - i)) : 0;
	add_bytes(&data, message->data, message->len);
	add_frame(b, FRAME_DATA, flags, c->stream, data.data, data.len);
}

/* Begins a call; "last" if no other message will follow in its stream. */
static void
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

static void
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

static bool
message_complete(Connection *c)
{
	const uint8_t *p = c->message.data;

	return c->message.len >= 5 && c->message.len >=
		5 + ((size_t) p[1] << 24 | p[2] << 16 | p[3] << 8 | p[4]);
}

/* Waits for the end of a call, or for a message of one that goes on. */
static void
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

static Connection *
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

/*
 * Calls
 */

/* Ids are chosen by us, so that a lease is used again by the next run. */
static void
grant_lease(Connection *c, int64_t id, int seconds)
{
	Buffer		request = {.len = 0};

	add_number(&request, 1, seconds);
	add_number(&request, 2, id);
	call(c, "/etcdserverpb.Lease/LeaseGrant", &request, true);
	while (!c->ended)
		receive(c);
	c->lease = id;
}

/*
 * Put a key, or delete it, if its revision of creation is this one (0: there is
 * none); else read it.  A put may be of another key than the one compared.
 */
static void
begin_txn(Connection *c, const char *compared, int64_t revision,
		  const char *put, bool delete)
{
	Buffer		request = {.len = 0},
				sub = {.len = 0},
				op = {.len = 0};

	add_number(&sub, 2, 1);		/* target: CREATE */
	add_string(&sub, 3, compared);
	add_number(&sub, 5, revision);
	add_message(&request, 1, &sub);

	sub.len = 0;
	add_string(&sub, 1, put);
	if (!delete)
	{
		add_string(&sub, 2, "holder");
		add_number(&sub, 3, c->lease);
	}
	add_message(&op, delete ? 3 : 2, &sub);
	add_message(&request, 2, &op);

	sub.len = op.len = 0;
	add_string(&sub, 1, compared);
	add_message(&op, 1, &sub);
	add_message(&request, 3, &op);
	call(c, "/etcdserverpb.KV/Txn", &request, true);
}

static bool
succeeded(Connection *c)
{
	return number_of(&c->message, 2) != 0;
}

static void
begin_range(Connection *c, const char *key)
{
	Buffer		request = {.len = 0};

	add_string(&request, 1, key);
	call(c, "/etcdserverpb.KV/Range", &request, true);
}

static void
begin_keepalive(Connection *c, bool first)
{
	Buffer		request = {.len = 0},
				out = {.len = 0};

	add_number(&request, 1, c->lease);
	if (first)
	{
		call(c, "/etcdserverpb.Lease/LeaseKeepAlive", &request, false);
		return;
	}
	c->message.len = 0;
	add_grpc(&out, c, &request, 0);
	send_all(c, &out);
}

/*
 * The operations
 */

static bool
is_operation(const char *name)
{
	return strcmp(operation, name) == 0;
}

static void
begin(Connection *c)
{
	if (is_operation("keepalive"))
		begin_keepalive(c, c->done == 0 && c->revision == 0);
	else if (is_operation("term"))
		begin_txn(c, c->key, c->deleting ? c->revision : 0, c->key, c->deleting);
	else if (is_operation("lose"))
		begin_txn(c, "held", 0, "held", false);
	else if (is_operation("check"))
		begin_range(c, "held");
	else
		begin_txn(c, "held", c->revision, c->key, false);
}

/* Judges the answer, and counts the operation if it is complete. */
static void
finish(Connection *c)
{
	if (is_operation("keepalive"))
	{
		if (number_of(&c->message, 3) == 0)
			die("a lease was lost");
	}
	else if (is_operation("term"))
	{
		if (!succeeded(c))
			die("a key was not as it should be");
		c->revision = revision_of(&c->message);
		c->deleting = !c->deleting;
		if (c->deleting)
			return;
	}
	else if (is_operation("lose"))
	{
		if (succeeded(c))
			die("a losing bid has won");
	}
	else if (is_operation("check"))
	{
		if (number_of(&c->message, 4) != 1)
			die("the key that is held is not there");
	}
	else if (!succeeded(c))
		die("a write was refused");
	c->done++;
}

static bool
answered(Connection *c)
{
	if (!is_operation("keepalive") ? c->ended : message_complete(c))
		return true;
	if (c->ended)
		die("a call has failed");
	return false;
}

/* Everything that is not measured: a lease, the key that is held. */
static void
prepare(Connection *c)
{
	const uint8_t *kv;
	size_t		len;
	uint64_t	revision;

	grant_lease(c, 1000 + c->id, LEASE_SECONDS);
	begin_txn(c, "held", 0, "held", false);
	await(c, true);
	begin_txn(c, c->key, 0, c->key, true);	/* what a killed run has left */
	await(c, true);
	begin_range(c, "held");
	await(c, true);
	if (!find_field(c->message.data + 5, c->message.len - 5, 2, NULL, &kv, &len) ||
		!find_field(kv, len, 2, &revision, NULL, NULL))
		die("the key that is held is not there");
	if (is_operation("write"))
		c->revision = revision;
	if (is_operation("term"))
	{
		/* A key that is there is deleted: its revision must be known. */
		begin_range(c, c->key);
		await(c, true);
		if (find_field(c->message.data + 5, c->message.len - 5, 2, NULL, &kv, &len) &&
			find_field(kv, len, 2, &revision, NULL, NULL))
		{
			begin_txn(c, c->key, revision, c->key, true);
			await(c, true);
		}
	}
}

static void *
work(void *arg)
{
	Worker	   *w = arg;
	int			left = w->nclients;
	struct pollfd *fds = calloc(w->nclients, sizeof(struct pollfd));

	pthread_barrier_wait(&barrier);
	for (int i = 0; i < w->nclients; i++)
	{
		fds[i].fd = w->clients[i]->fd;
		fds[i].events = POLLIN;
		begin(w->clients[i]);
	}
	while (left > 0)
	{
		if (w->nclients > 1 && poll(fds, w->nclients, -1) < 0 && errno != EINTR)
			die("cannot wait");
		for (int i = 0; i < w->nclients; i++)
		{
			Connection *c = w->clients[i];

			if (w->nclients > 1 && !(fds[i].revents & (POLLIN | POLLHUP | POLLERR)))
				continue;
			receive(c);
			if (!answered(c) || c->done == count)
				continue;
			if (!message_complete(c))
				die("a call has failed");
			finish(c);
			if (c->done < count)
				begin(c);
			else
				left--;
		}
	}
	pthread_barrier_wait(&barrier);
	free(fds);
	return NULL;
}

static void
measure(int nthreads, int nclients)
{
	Worker	   *workers = calloc(nthreads, sizeof(Worker));
	double		from,
				seconds;

	pthread_barrier_init(&barrier, NULL, nthreads + 1);
	for (int i = 0; i < nthreads; i++)
		workers[i].clients = calloc(nclients, sizeof(Connection *));
	for (int i = 0; i < nclients; i++)
	{
		Worker	   *w = &workers[i % nthreads];
		Connection *c = connect_to_server(i);

		w->clients[w->nclients++] = c;
		prepare(c);
	}
	for (int i = 0; i < nthreads; i++)
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			die("cannot start a thread");
	pthread_barrier_wait(&barrier);
	from = monotonic();
	pthread_barrier_wait(&barrier);
	seconds = monotonic() - from;
	printf("tps = %.6f\n", nclients * count / seconds);
}

/*
 * The candidate watches the leader's key, and puts its own when that is gone.
 * Prints milliseconds until it is told that it leads: from when the release was
 * sent, or from the earliest moment at which the lease can have run out.
 */
static void
hand_over(long rounds, bool expiry)
{
	static const char *key = "hand-over";

	for (long round = 0; round < rounds; round++)
	{
		Connection *leader = connect_to_server(0);
		Connection *watcher = connect_to_server(1);
		Connection *candidate = connect_to_server(2);
		Buffer		request = {.len = 0},
					sub = {.len = 0};
		double		from;
		int64_t		revision;

		grant_lease(candidate, 1001, LEASE_SECONDS);
		grant_lease(leader, time(NULL) * 1000 + round, HAND_OVER_SECONDS);
		begin_txn(leader, key, 0, key, false);
		await(leader, true);
		if (!succeeded(leader))
			die("the leader was refused");
		revision = revision_of(&leader->message);

		add_string(&sub, 1, key);
		add_number(&sub, 3, revision + 1);
		add_message(&request, 1, &sub);
		call(watcher, "/etcdserverpb.Watch/Watch", &request, false);
		await(watcher, false);	/* created */
		watcher->message.len = 0;

		from = monotonic();
		if (expiry)
		{
			begin_keepalive(leader, true);
			await(leader, false);
			from += HAND_OVER_SECONDS;
		}
		else
			begin_txn(leader, key, revision, key, true);
		await(watcher, false);	/* deleted */
		begin_txn(candidate, key, 0, key, false);
		await(candidate, true);
		if (!succeeded(candidate))
			die("the candidate was refused");
		printf("%.3f\n", 1000 * (monotonic() - from));

		begin_txn(candidate, key, revision_of(&candidate->message), key, true);
		await(candidate, true);
		close(leader->fd);
		close(watcher->fd);
		close(candidate->fd);
		free(leader);
		free(watcher);
		free(candidate);
	}
}

int
main(int argc, char **argv)
{
	int			nthreads,
				nclients;

	if (argc < 5)
		die("usage: client SOCKET THREADS CLIENTS COUNT OPERATION");
	socket_path = argv[1];
	operation = argv[argc - 1];
	if (strcmp(argv[2], "hand-over") == 0)
	{
		hand_over(atol(argv[3]), strcmp(argv[4], "expiry") == 0);
		return 0;
	}
	nthreads = atoi(argv[2]);
	nclients = atoi(argv[3]);
	count = atol(argv[4]);
	if (argc != 6 || nthreads < 1 || nclients < nthreads || count < 1)
		die("usage: client SOCKET THREADS CLIENTS COUNT OPERATION");
	measure(nthreads, nclients);
	return 0;
}
