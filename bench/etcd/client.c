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
 * Speaks gRPC by itself (wire.c), and looks at what is received only as far as
 * needed to know that the operation has done what it should.  So the client
 * takes less of the processors from the server than any library would.
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
#include <time.h>
#include <unistd.h>

#include "wire.h"

#define LEASE_SECONDS 3600
#define HAND_OVER_SECONDS 2		/* the shortest that etcd grants */

typedef struct Worker
{
	pthread_t	thread;
	Connection **clients;
	int			nclients;
} Worker;

const char *socket_path;
static const char *operation;
static long count;
static pthread_barrier_t barrier;

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
