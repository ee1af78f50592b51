/*-------------------------------------------------------------------------
 *
 * leader_election.h
 *	  What every file of the extension shares: limits, SQLSTATEs, key types.
 *
 * Times are int64 microseconds throughout: points in time are readings of
 * CLOCK_MONOTONIC, durations are differences of such readings.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEADER_ELECTION_H
#define LEADER_ELECTION_H

/* SQLSTATEs of our own; documented, never reused for another meaning */
#define ERRCODE_LE_STALE_EPOCH		MAKE_SQLSTATE('L', 'E', '0', '0', '1')
#define ERRCODE_LE_NO_TOKEN			MAKE_SQLSTATE('L', 'E', '0', '0', '2')
#define ERRCODE_LE_UNISSUED_EPOCH	MAKE_SQLSTATE('L', 'E', '0', '0', '3')

#define LE_NAME_MAX			255 /* bytes of an election's or holder's name */
#define LE_METADATA_MAX		8192	/* bytes of metadata as text */
#define LE_EPOCH_LIMIT		(INT64CONST(1) << 53)	/* epochs stay below */

#define LE_MS				INT64CONST(1000)
#define LE_SECOND			INT64CONST(1000000)
#define LE_TTL_MIN			(100 * LE_MS)
#define LE_TTL_MAX			(86400 * LE_SECOND)
#define LE_WAIT_MAX			(10 * LE_SECOND)

/* The kinds of a term, as stored in the table of elections */
#define LE_KIND_LEASE		'l'
#define LE_KIND_SESSION		's'
#define LE_KIND_EXTERNAL	'x' /* of no term: tokens come from elsewhere */

/*
 * A term: who it is about is always asked for by all three.  rel is the table
 * of elections the term stands in, which tells installations apart.
 */
typedef struct LeKey
{
	Oid			rel;
	const char *election;
	int64		epoch;
} LeKey;

static inline bool
le_key_equal(const LeKey *a, const LeKey *b)
{
	return a->epoch == b->epoch && a->rel == b->rel &&
		strcmp(a->election, b->election) == 0;
}

/*
 * Moves whenever a token that this backend has found current may have
 * stopped being so by something that this backend did itself: the end of a
 * transaction or subtransaction, a release, another value of the setting.
 * What was remembered under another generation is asked for again.
 */
extern uint64 le_generation;

/*
 * Makes our transaction callback run before every other one that has been
 * registered so far.
 */
extern void le_callbacks_first(void);

#endif							/* LEADER_ELECTION_H */
