/*-------------------------------------------------------------------------
 *
 * epoch.c
 *	  Draws epochs: fencing tokens that never repeat and only grow.
 *
 * Three sequences hold what must outlive a rolled-back grant: the last epoch, or
 * one above it; the identity of where it was set (a hash of the system
 * identifier, and the WAL timeline); and for one that lies ahead of the clock,
 * when it was set.  They are set under a lock of their own, held for that only,
 * so that grants do not queue behind open transactions.
 *
 * Most epochs are the clock's share, and where grants come thick and fast each
 * would set the sequence.  So it is set a little ahead of the clock, and shared
 * memory has what it was set to and the highest epoch that was drawn.  While
 * the sequence still has that value, whoever finds the clock's share between
 * the two takes it, by compare and exchange on the highest one, without the
 * lock and without a trace.  After a crash the sequence itself counts as the
 * last epoch; the clock has passed it by then, unless it was set back.
 *
 * Otherwise the next epoch is the greatest of
 *	  clock's share		2^20 for each second since 2020, and 2^32 for each
 *						timeline
 *	  last + 1			the ordinary step
 *	  the row's + 1		rows may arrive without the sequences
 *	  the highest + 1	drawn since the server started, whatever became of
 *						the sequences since
 * and, where the last one is not below the clock's share (the highest one, while
 * the sequence is set ahead),
 *	  last + 2^19 for each second since it was drawn, and 2^32 for each timeline
 *	  since, or for another server.
 *
 * The clock's share is the same for every counter of a server.  So one that is
 * as old as the dump it came from, or fresh after DROP EXTENSION, draws what
 * one that has seen everything would.  A timeline counts for 68 minutes of the
 * clock, as a promoted standby knows neither the last grants of the old
 * primary nor its clock.
 *
 * A counter that was dumped on a server with more timelines, or drawn from
 * while the clock was wrong, is ahead of the clock's share.  It goes on at half
 * the speed until it has been caught up with: growing, as even then an older
 * state of the server may be put back.
 *
 * The clock is a lower bound only, so one that is set back lowers nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "commands/sequence.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/fmgrprotos.h"

#include "clock.h"
#include "epoch.h"
#include "leader_election.h"
#include "lock.h"
#include "shmem.h"

#define PER_TIMELINE		(INT64CONST(1) << 32)
#define PER_SECOND			(INT64CONST(1) << 20)
#define PER_SECOND_AHEAD	(PER_SECOND / 2)

/* How far ahead of the clock the sequence is set: a sixteenth of a second */
#define RESERVED			(PER_SECOND / 16)

/* Where epochs are drawn; kept in a sequence, as hash << 32 | timeline */
typedef struct Identity
{
	uint32		server;
	TimeLineID	timeline;
} Identity;

/* Where the counter was logged that covers what was drawn last */
static XLogRecPtr drawn_lsn = InvalidXLogRecPtr;

static Identity
server_identity(void)
{
	uint64		sysid = GetSystemIdentifier();
	uint32		hash = hash_bytes((const unsigned char *) &sysid,
								  sizeof(sysid));
	Identity	here = {hash & 0x7fffffff, GetWALInsertionTimeLine()};

	return here;
}

/* The value that a sequence has reached; missing if it has never been set. */
static int64
sequence_value(Oid sequence, int64 missing)
{
	LOCAL_FCINFO(fcinfo, 1);
	Datum		result;

	InitFunctionCallInfoData(*fcinfo, NULL, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = ObjectIdGetDatum(sequence);
	fcinfo->args[0].isnull = false;
	result = pg_sequence_last_value(fcinfo);
	return fcinfo->isnull ? missing : DatumGetInt64(result);
}

static void
set_sequence(Oid sequence, int64 value)
{
	(void) DirectFunctionCall2(setval_oid, ObjectIdGetDatum(sequence),
							   Int64GetDatum(value));
}

/* So many for each second of that time, which the product would overflow */
static int64
time_share(int64 us, int64 per_second)
{
	return us / USECS_PER_SEC * per_second +
		us % USECS_PER_SEC * per_second / USECS_PER_SEC;
}

/* At most so many timelines that their share cannot overflow */
static int64
timelines_share(int64 timelines)
{
	return Min(timelines, LE_EPOCH_LIMIT / PER_TIMELINE) * PER_TIMELINE;
}

/*
 * How far the counter, which is ahead of the clock, must go.  The time at which
 * it was drawn from last is 0 if it was not ahead then.
 */
static int64
step_ahead(int64 now, int64 drawn_at, const Identity *there,
		   const Identity *here)
{
	int64		step = 1;

	if (drawn_at > 0 && now > drawn_at)
		step += time_share(now - drawn_at, PER_SECOND_AHEAD);
	if (there->server != here->server)
		step += PER_TIMELINE;
	else if (there->timeline < here->timeline)
		step += timelines_share(here->timeline - there->timeline);
	return step;
}

/* What the clock says, for a counter that has seen so many timelines */
static int64
clock_share(int64 now, int64 timelines)
{
	return time_share(now, PER_SECOND) + timelines_share(timelines);
}

/*
 * Makes an epoch ours, unless one as high was drawn since the server started.
 * The counter must have been set no lower before, or a crash could forget it.
 */
static bool
claim(int64 epoch)
{
	pg_atomic_uint64 *highest = &le_shmem_epochs()->highest;
	uint64		seen = pg_atomic_read_u64(highest);

	while (seen < (uint64) epoch)
	{
		if (pg_atomic_compare_exchange_u64(highest, &seen, epoch))
			return true;
	}
	return false;
}

/*
 * Draws the clock's share, if the sequence was set ahead of it, by this server,
 * and by nobody since; 0 if that cannot be.
 */
static int64
draw_reserved(const LeRelations *relations, int64 row_epoch)
{
	LeEpochs   *epochs = le_shmem_epochs();
	int64		last = sequence_value(relations->epoch, 0);
	int64		share = clock_share(le_clock_since_2020(),
									GetWALInsertionTimeLine());

	if ((uint64) last != pg_atomic_read_u64(&epochs->reserved) ||
		share > last || share <= row_epoch || !claim(share))
		return 0;
	pg_read_barrier();
	drawn_lsn = pg_atomic_read_u64(&epochs->reserved_lsn);
	return share;
}

/*
 * Draws that epoch, after the sequence was set to it; or ahead of it, if it is
 * the clock's and what is drawn in this database from then on will be known.
 * False if as high a one was drawn meanwhile.
 */
static bool
draw_set(Oid sequence, int64 epoch, bool of_clock)
{
	LeEpochs   *epochs = le_shmem_epochs();
	bool		ahead = of_clock && !epochs->shared;
	int64		value = epoch;
	bool		claimed;

	if (ahead)
		value = Min(epoch + RESERVED, LE_EPOCH_LIMIT - 1);
	set_sequence(sequence, value);
	drawn_lsn = XactLastRecEnd;
	claimed = claim(epoch);
	if (!epochs->shared)
	{
		/*
		 * Not before the claim, or others would overtake it.  Whoever finds
		 * the value must find where it was logged.
		 */
		pg_atomic_write_u64(&epochs->reserved_lsn, drawn_lsn);
		pg_write_barrier();
		pg_atomic_write_u64(&epochs->reserved, ahead ? value : 0);
	}
	return claimed;
}

/*
 * Draws the next epoch and sets the sequences, never lower than they are; 0 if
 * somebody else has drawn it.  The caller holds the counter's lock.
 */
static int64
draw_next(const LeRelations *relations, int64 row_epoch)
{
	LeEpochs   *epochs = le_shmem_epochs();
	int64		last = sequence_value(relations->epoch, 0);
	int64		stored = sequence_value(relations->identity, -1);
	int64		drawn_at = sequence_value(relations->drawn_at, 0);
	int64		highest = pg_atomic_read_u64(&epochs->highest);
	int64		now = le_clock_since_2020();
	Identity	here = server_identity();
	Identity	there = here;
	int64		share;
	int64		epoch;
	bool		of_clock;

	if (stored >= 0)
	{
		there.server = (uint32) (stored >> 32);
		there.timeline = (TimeLineID) stored;
	}
	share = clock_share(now, Max(here.timeline, there.timeline));
	epoch = Max(share, Min(row_epoch, LE_EPOCH_LIMIT) + 1);
	epoch = Max(epoch, highest + 1);

	/* If it was set ahead, what was drawn is in memory. */
	if ((uint64) last == pg_atomic_read_u64(&epochs->reserved) &&
		share > highest && share > row_epoch)
		last = highest;
	if (last >= share)
		epoch = Max(epoch, last +
					step_ahead(now, drawn_at, &there, &here));
	if (epoch >= LE_EPOCH_LIMIT)
		ereport(ERROR,
				(errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
				 errmsg("the epochs of this database are used up"),
				 errdetail("Epochs lie below %lld, so that every client can represent them.",
						   (long long) LE_EPOCH_LIMIT)));

	if (stored < 0 || there.server != here.server ||
		there.timeline != here.timeline)
		set_sequence(relations->identity,
					 ((int64) here.server << 32) | here.timeline);

	/* Time is counted once, also if the clock goes to and fro. */
	of_clock = epoch == share && there.timeline <= here.timeline;
	now = of_clock ? 0 : Max(now, drawn_at);
	if (now != drawn_at)
		set_sequence(relations->drawn_at, now);
	return draw_set(relations->epoch, epoch, of_clock) ? epoch : 0;
}

static int64
draw(const LeRelations *relations, int64 row_epoch)
{
	LeLock		lock = le_lock_counter(relations->state);
	int64		epoch = draw_reserved(relations, row_epoch);

	if (epoch > 0)
		return epoch;
	le_lock_wait(&lock, ExclusiveLock);
	do
	{
		/* Whoever held the lock before us may have reserved some. */
		epoch = draw_reserved(relations, row_epoch);
		if (epoch == 0)
			epoch = draw_next(relations, row_epoch);
	} while (epoch == 0);
	le_lock_release(&lock, ExclusiveLock);
	return epoch;
}

int64
le_epoch_draw(const LeRelations *relations, int64 row_epoch)
{
	LeRelations ours = *relations;
	int64		epoch;
	Oid			user;
	int			context;

	/*
	 * Callers have no rights on the sequences.  An error restores the user
	 * with the (sub)transaction.
	 */
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(ours.owner, context | SECURITY_LOCAL_USERID_CHANGE);
	epoch = draw(&ours, row_epoch);
	SetUserIdAndSecContext(user, context);
	return epoch;
}

void
le_epoch_flush(void)
{
	XLogFlush(drawn_lsn);
}
