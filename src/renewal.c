/*-------------------------------------------------------------------------
 *
 * renewal.c
 *	  Going on with a lease, and asking whether it goes on.
 *
 * Both ask the place of the term, and nothing else if there is one: no row, no
 * lock that anybody waits for, no transaction id.  Only with synchronous
 * standbys does a renewal write to the log, now and then, see quorum.c.
 *
 * A restart forgets the places.  The row still names the holder, so its first
 * renewal makes the place again, under the election's lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"

#include "change.h"
#include "clock.h"
#include "config.h"
#include "guc.h"
#include "lock.h"
#include "quorum.h"
#include "renewal.h"
#include "rights.h"
#include "session.h"

/* How long a renewal that must read the row waits for one who changes it */
#define RECLAIM_WAIT		(5 * LE_SECOND)
/* How long a renewal waits to see what becomes of an end in the making */
#define CLOSING_WAIT		(100 * LE_MS)
#define CLOSING_PAUSE_US	(1 * LE_MS)

void
le_renewal_make_place(const LeKey *key, const LeElection *row,
					  int64 lock_delay, LePlaceState state, int64 deadline)
{
	if (!le_place_make(key, row, lock_delay, state, deadline))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("no room for another live lease"),
				 errhint("Raise leader_election.max_leases and restart the server.")));
}

/* What is configured for the election of a term that a restart had forgotten */
static int64
lock_delay(const LeKey *key)
{
	Oid			table = le_relations_config(key->rel);
	Relation	rel;
	LeConfig	config;

	if (!OidIsValid(table))
		return 0;
	rel = le_config_open(table, AccessShareLock);
	le_config_read(rel, key->election, &config);
	table_close(rel, AccessShareLock);
	return config.lock_delay;
}

/*
 * The first renewal after a restart: gives a held term its place again.  The
 * row is read under the lock that a takeover conflicts with, or a term that
 * is being replaced would come back to life.  False if the row no longer names
 * the term, its time after the restart has run out, or somebody is changing it.
 */
static bool
reclaim(const LeKey *key, int64 until)
{
	LeLock		lock = le_lock_election(key->rel, key->election);
	Relation	rel;
	LeView		view;
	bool		alive;

	if (le_lock_poll(&lock, RowShareLock, until) != NULL)
		return false;
	rel = le_state_open(key->rel, AccessShareLock);
	le_view_read(rel, key->election, &view);
	alive = view.row.epoch == key->epoch && view.row.kind == LE_KIND_LEASE &&
		view.standing == LE_STANDING_HELD;
	if (alive && view.forgotten)
	{
		char		owner[NAMEDATALEN];

		strlcpy(owner, view.row.owner, NAMEDATALEN);
		le_renewal_make_place(key, &view.row, lock_delay(key), LE_PLACE_OPEN,
							  view.deadline);
		/* Another owner is set without our lock, and told to a place only. */
		le_store_read(rel, key->election, &view.row);
		if (strcmp(owner, view.row.owner) != 0)
			le_place_configure(key, view.row.owner, -1);
	}
	table_close(rel, AccessShareLock);
	le_lock_release(&lock, RowShareLock);
	return alive;
}

/*
 * Renews a term that has a place.  An end that is just being committed is
 * waited for: the answer would be wrong if that commit failed.
 */
static bool
renew_place(const LeKey *key, LePlaceInfo *info)
{
	int64		until = le_clock_now() + CLOSING_WAIT;

	for (;;)
	{
		if (le_change_ended(key))
		{
			le_place_look(key, info);
			return false;
		}
		if (le_place_renew(key, info))
		{
			if (info->ask)
				le_quorum_ask(info->ttl);
			return true;
		}
		if (info->found && info->state == LE_PLACE_PENDING &&
			le_change_begun(key))
			return info->now < info->deadline;
		if (!info->found || info->state != LE_PLACE_CLOSING ||
			info->now >= until)
			return false;
		CHECK_FOR_INTERRUPTS();
		pg_usleep(CLOSING_PAUSE_US);
	}
}

/* Tries to renew by memory, and by the row if a restart has forgotten it. */
bool
le_renewal_try(const LeKey *key, LePlaceInfo *info)
{
	if (renew_place(key, info))
		return true;
	return !info->found && reclaim(key, le_clock_now() + RECLAIM_WAIT) &&
		renew_place(key, info);
}

/* How the election stands, for one who has the rights on it (else 42501). */
static void
read_view(const LeKey *key, LeView *view)
{
	Relation	rel = le_state_open(key->rel, AccessShareLock);

	le_view_read(rel, key->election, view);
	table_close(rel, AccessShareLock);
	if (view->row.exists)
		le_rights_require(view->row.owner, key->election);
}

void
le_renewal_renew(const LeKey *key, LeAnswer *answer)
{
	LePlaceInfo info;
	LeView		view;

	le_require_primary();
	le_shmem_attach();
	le_place_look(key, &info);
	if (info.found)
		le_rights_require(info.owner, key->election);
	if (!info.found || !renew_place(key, &info))
	{
		/* Not led, or forgotten: the row tells which, and who leads. */
		read_view(key, &view);
		if (view.row.epoch != key->epoch || !view.forgotten ||
			view.standing != LE_STANDING_HELD ||
			!le_renewal_try(key, &info))
		{
			le_answer_other(answer, &view, view.row.ttl > 0 ? view.row.ttl :
							le_default_ttl_ms * LE_MS);
			return;
		}
	}
	le_answer_leader(answer, key->epoch, info.holder, info.ttl,
					 le_clock_left(info.deadline, info.now));
}

bool
le_renewal_check(const LeKey *key)
{
	LePlaceInfo info;
	LeView		view;

	le_require_primary();
	le_shmem_attach();
	le_place_look(key, &info);
	if (info.found)
	{
		le_rights_require(info.owner, key->election);
		if (le_change_ended(key) || info.now >= info.deadline ||
			(info.kind == LE_KIND_SESSION && !le_session_alive(key)))
			return false;
		return (info.state == LE_PLACE_OPEN && info.confirmed) ||
			(info.state == LE_PLACE_PENDING && le_change_begun(key));
	}

	read_view(key, &view);
	return view.row.epoch == key->epoch &&
		(view.standing == LE_STANDING_HELD ||
		 (view.row.kind == LE_KIND_EXTERNAL && le_election_is_led(&view.row)));
}

/* What a scan for a holder's forgotten leases collects */
typedef struct Forgotten
{
	Oid			state;
	const char *holder;
	List	   *keys;			/* of LeKey */
	bool		all;			/* are those all that there are? */
	int64		now;
	int64		start;			/* of the incarnation */
	int64		until;			/* when the last one of all holders ends */
} Forgotten;

static bool
collect_forgotten(const LeElection *election, void *arg)
{
	Forgotten  *forgotten = arg;
	LeView		view;

	if (!election->held || election->kind != LE_KIND_LEASE ||
		le_place_forgotten_deadline(forgotten->start, election->ttl) <=
		forgotten->now)
		return true;
	view.row = *election;
	le_view_judge(forgotten->state, &view);
	if (view.forgotten)
		forgotten->until = Max(forgotten->until, view.deadline);
	if (strcmp(election->holder, forgotten->holder) != 0)
		return true;
	if (view.forgotten && view.standing == LE_STANDING_HELD &&
		le_rights_has(election->owner))
	{
		LeKey	   *key = palloc(sizeof(LeKey));

		key->rel = forgotten->state;
		key->election = pstrdup(election->election);
		key->epoch = election->epoch;
		forgotten->keys = lappend(forgotten->keys, key);
	}
	else if (view.unconfirmed)
		forgotten->all = false;
	return true;
}

/* Renews the lease that a key names, and tells of it. */
static void
renew_and_tell(const LeKey *key, LeTell tell, void *arg)
{
	LePlaceInfo renewed;

	if (renew_place(key, &renewed))
		tell(key->election, key->epoch,
			 le_clock_left(renewed.deadline, renewed.now), arg);
}

/*
 * Gives the places back that a restart has taken from a holder's leases.  A
 * lease without a place ends one TTL after the start.  When the last of them
 * does, each scan finds out anew, for all backends: later there is nothing to
 * scan for; nor when this backend did it before for the same holder and user
 * and met nobody at work.
 */
static void
reclaim_all(Oid state, const char *holder, LeTell tell, void *arg)
{
	static struct
	{
		Oid			rel;
		Oid			user;
		int64		start;
		char		holder[LE_NAME_MAX + 1];
	}			done;
	Forgotten	forgotten = {.state = state,.holder = holder,.all = true};
	LeKey		nobody = {state, "", 0};
	LePlaceInfo info;
	Relation	rel;
	ListCell   *lc;
	int64		until = le_clock_now() + RECLAIM_WAIT;

	le_place_look(&nobody, &info);
	if (info.now - info.start > LE_TTL_MAX ||
		info.now >= le_shmem_forgotten_until(state, info.start) ||
		(done.rel == state && done.user == GetUserId() &&
		 done.start == info.start && strcmp(done.holder, holder) == 0))
		return;

	forgotten.now = info.now;
	forgotten.start = info.start;
	rel = le_state_open(state, AccessShareLock);
	le_store_scan(rel, collect_forgotten, &forgotten);
	table_close(rel, AccessShareLock);
	le_shmem_set_forgotten(state, info.start, forgotten.until);
	foreach(lc, forgotten.keys)
	{
		if (reclaim(lfirst(lc), until))
			renew_and_tell(lfirst(lc), tell, arg);
		else
			forgotten.all = false;
	}
	if (forgotten.all)
	{
		done.rel = state;
		done.user = GetUserId();
		done.start = info.start;
		strlcpy(done.holder, holder, sizeof(done.holder));
	}
}

void
le_renewal_renew_all(Oid state, const char *holder, LeTell tell, void *arg)
{
	LeSweep		sweep = {0};

	le_require_primary();
	le_shmem_attach();
	sweep.list = le_place_list(state, holder);
	/* What this transaction has changed itself takes a closer look. */
	sweep.look_only = le_change_any();
	while (le_place_sweep(&sweep))
	{
		for (int i = 0; i < sweep.count; i++)
		{
			LeSwept    *swept = &sweep.batch[i];
			LeKey		key = {state, swept->election, swept->epoch};

			if (swept->renewed)
				tell(swept->election, swept->epoch, swept->left, arg);
			else
				renew_and_tell(&key, tell, arg);
		}
		if (sweep.ask)
			le_quorum_ask(sweep.least_ttl);
		sweep.allowed = le_rights_has(sweep.owner);
	}

	/* This may have to wait; what is live must not lapse over it. */
	reclaim_all(state, holder, tell, arg);
}
