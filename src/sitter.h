/*-------------------------------------------------------------------------
 *
 * sitter.h
 *	  Ends a transaction that sits on an election.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_SITTER_H
#define LE_SITTER_H

/*
 * Ends this backend (57P01), busy or idle, when the clock shows "until"; takes
 * the place of an earlier time.
 */
extern void le_sitter_end_at(int64 until);

/* Does not.  Cannot fail. */
extern void le_sitter_spare(void);

#endif							/* LE_SITTER_H */
