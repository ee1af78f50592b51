/*-------------------------------------------------------------------------
 *
 * epoch.c
 *	  Draws epochs: fencing tokens that never repeat and only grow.
 *
 * Three sequences hold what must outlive a rolled-back grant: the last epoch,
 * the identity of where it was drawn (a hash of the system identifier and the
 * database, and the WAL timeline), and an offset.  They are read and set under a lock of
 * their own, held for the draw only, so that grants do not queue behind open
 * transactions.
 *
 * The next epoch is the greatest of
 *	  last + 1			the ordinary step
 *	  the row's + 1		rows may arrive without the sequence
 *	  the floor + 1		drawn since the server started, whatever became of
 *						the sequence since (extension dropped, data restored)
 *	  last + jump		where the identity differs from the stored one: 2^32 for
 *						each timeline between, as the grants of a lost tail of
 *						the old timeline are not known here
 *	  clock + offset	2^20 for each second since 2020: sequences restored from
 *						an older state lie behind it
 * The offset grows by every jump, which keeps the clock's share of a timeline
 * above all epochs of earlier ones.  A fresh counter jumps as often as one that
 * lived through all timelines of the server would have: the extension may have
 * been here before.  The clock is a lower bound only, so a
 * clock that is set back lowers nothing.
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

#define JUMP				(INT64CONST(1) << 32)
#define EPOCHS_PER_SECOND	(INT64CONST(1) << 20)

/*
 * 31 bits for the database of this server, 32 for the timeline: a positive
 * number.  The sequences of a dump that is restored into another database are
 * as old as the dump.
 */
static int64
server_identity(void)
{
	uint64		sysid = GetSystemIdentifier();
	uint32		hash = hash_combine(hash_bytes((const unsigned char *) &sysid,
											   sizeof(sysid)),
									murmurhash32(MyDatabaseId));

	return ((int64) (hash & 0x7fffffff) << 32) | GetWALInsertionTimeLine();
}

/* The value that a sequence has reached; -1 if it has never been set. */
static int64
sequence_value(Oid sequence)
{
	LOCAL_FCINFO(fcinfo, 1);
	Datum		result;

	InitFunctionCallInfoData(*fcinfo, NULL, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = ObjectIdGetDatum(sequence);
	fcinfo->args[0].isnull = false;
	result = pg_sequence_last_value(fcinfo);
	return fcinfo->isnull ? -1 : DatumGetInt64(result);
}

static void
set_sequence(Oid sequence, int64 value)
{
	(void) DirectFunctionCall2(setval_oid, ObjectIdGetDatum(sequence),
							   Int64GetDatum(value));
}

/* How far an epoch must jump, as the stored identity is not the server's. */
static int64
identity_jump(int64 stored, int64 server)
{
	int64		timelines = 1;

	if (stored == server)
		return 0;
	if (stored < 0)
		timelines = (uint32) server;
	else if (stored >> 32 == server >> 32)
		timelines = Max((int64) (uint32) server - (int64) (uint32) stored, 1);
	/* No further than an epoch can lie, or the product would overflow. */
	return Min(timelines, LE_EPOCH_LIMIT / JUMP) * JUMP;
}

/* The caller holds the counter's lock and has the owner's rights. */
static int64
draw(const LeRelations *relations, int64 row_epoch)
{
	int64		last = Max(sequence_value(relations->epoch), 0);
	int64		offset = Max(sequence_value(relations->offset), 0);
	int64		server = server_identity();
	int64		jump = identity_jump(sequence_value(relations->identity), server);
	int64		epoch;

	epoch = Max(last, Min(row_epoch, LE_EPOCH_LIMIT)) + 1;
	epoch = Max(epoch, (int64) pg_atomic_read_u64(le_shmem_floor()) + 1);
	epoch = Max(epoch, last + jump);
	epoch = Max(epoch, le_clock_since_2020(EPOCHS_PER_SECOND) +
				offset + jump);
	if (epoch >= LE_EPOCH_LIMIT)
		ereport(ERROR,
				(errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
				 errmsg("the epochs of this database are used up"),
				 errdetail("Epochs lie below %lld, so that every client can represent them.",
						   (long long) LE_EPOCH_LIMIT)));
	if (jump > 0)
	{
		set_sequence(relations->offset, offset + jump);
		set_sequence(relations->identity, server);
	}
	set_sequence(relations->epoch, epoch);
	return epoch;
}

int64
le_epoch_draw(const LeRelations *relations, int64 row_epoch)
{
	LeRelations ours = *relations;
	LeLock		lock = le_lock_counter(ours.state);
	pg_atomic_uint64 *floor = le_shmem_floor();
	uint64		seen = pg_atomic_read_u64(floor);
	int64		epoch;
	Oid			user;
	int			context;

	le_lock_wait(&lock, ExclusiveLock);

	/*
	 * Callers have no rights on the sequences.  An error restores the user
	 * with the (sub)transaction.
	 */
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(ours.owner, context | SECURITY_LOCAL_USERID_CHANGE);
	epoch = draw(&ours, row_epoch);
	SetUserIdAndSecContext(user, context);

	/* Another database may share the floor, and raise it meanwhile. */
	while (seen < (uint64) epoch &&
		   !pg_atomic_compare_exchange_u64(floor, &seen, epoch))
		;
	le_lock_release(&lock, ExclusiveLock);
	return epoch;
}

void
le_epoch_flush(void)
{
	XLogFlush(XactLastRecEnd);
}
