/*-------------------------------------------------------------------------
 *
 * token.h
 *	  The fencing tokens that the current transaction depends on.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_TOKEN_H
#define LE_TOKEN_H

#include "leader_election.h"

/*
 * Makes the transaction depend on a token: error LE001 or LE003 now if it is
 * not current, or at commit if it is no longer.  Was it brought by a setting,
 * and not by the statement itself?
 */
extern void le_token_use(const LeKey *key, bool from_setting);

/*
 * The same by leader_fence: the caller needs the rights of a holder (42501),
 * and later writes of the transaction that bring no token present this one.
 */
extern void le_token_present(const LeKey *key);

/* Error LE002: a write to that table needed a token of the election. */
extern void le_token_missing(Oid rel, const char *election, const char *table);

/*
 * The epoch presented for an election by call, by setting or by leading it in
 * this session; 0 if none.
 */
extern int64 le_token_presented(Oid rel, const char *election);

/* Does the transaction depend on any token? */
extern bool le_token_any(void);

/* Has the pre-commit of the transaction begun? */
extern bool le_token_committing(void);

/* Called by the transaction callbacks, pre_commit perhaps more than once. */
extern void le_token_pre_commit(void);
extern void le_token_commit(void);
extern void le_token_forget(void);
extern void le_token_subxact_commit(void);
extern void le_token_subxact_abort(void);

#endif							/* LE_TOKEN_H */
