/*-------------------------------------------------------------------------
 *
 * view.c
 *	  How an election stands: its row and the place of its term together.
 *
 * The row says who holds an election, memory says until when, and the lock of
 * a session term whether its session lives.  This is the only file that puts
 * them together.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/rel.h"

#include "change.h"
#include "clock.h"
#include "place.h"
#include "session.h"
#include "view.h"

typedef void (*Look) (const LeKey *key, LePlaceInfo *info);

static void
judge(Oid rel, LeView *view, Look look)
{
	LePlaceInfo place;
	bool		settled;
	LeKey		key = {rel, view->row.election, view->row.epoch};

	view->unconfirmed = view->forgotten = view->session_ended = false;
	view->pid = 0;
	if (!view->row.held)
	{
		view->standing = LE_STANDING_FREE;
		view->now = view->deadline = 0;
		return;
	}

	look(&key, &place);
	view->now = place.now;
	view->forgotten = !place.found;
	view->deadline = place.found ? place.deadline :
		le_place_forgotten_deadline(place.start, view->row.ttl);
	settled = !place.found || place.state == LE_PLACE_OPEN;
	view->unconfirmed = settled && !place.confirmed;
	view->pid = place.found ? place.pid : 0;
	view->session_ended = view->row.kind == LE_KIND_SESSION &&
		!le_session_alive(&key);
	if (view->session_ended ||
		view->now >= view->deadline || place.state == LE_PLACE_CLOSED)
		view->standing = LE_STANDING_LAPSED;
	else if ((settled && place.confirmed) ||
			 (place.state == LE_PLACE_PENDING && le_change_begun(&key)))
		view->standing = LE_STANDING_HELD;
	else
		view->standing = LE_STANDING_UNCERTAIN;
}

void
le_view_judge(Oid rel, LeView *view)
{
	judge(rel, view, le_place_look);
}

void
le_view_watch(Oid rel, LeView *view)
{
	judge(rel, view, le_place_peek);
}

void
le_view_read(Relation rel, const char *election, LeView *view)
{
	le_store_read(rel, election, &view->row);
	le_view_judge(RelationGetRelid(rel), view);
}

bool
le_view_is_held(const LeView *view)
{
	return view->standing == LE_STANDING_HELD ||
		view->standing == LE_STANDING_UNCERTAIN;
}

const char *
le_view_end(const LeView *view, TimestampTz now, TimestampTz *ended_at)
{
	int64		mono = le_clock_now();
	bool		lapsed = view->standing == LE_STANDING_LAPSED;

	/* A session ends unseen, so all that is known is that it has. */
	*ended_at = now;
	if (lapsed && mono >= view->deadline)
		*ended_at -= mono - view->deadline;
	/* The wall clock may have been set back since. */
	*ended_at = Max(*ended_at, view->row.acquired_at);
	if (!lapsed)
		return NULL;
	return view->session_ended && view->now < view->deadline ?
		"session_ended" : "expired";
}
