/*
 * election.pml: how terms of an election begin, go on and end, as a model that
 * spin searches exhaustively for a broken promise.
 *
 * One election, two candidates, small bounds.  Every step below is one that the
 * server takes without being disturbed, or several under a lock whose order with
 * the steps of others makes no difference; between any two of them everybody
 * else may go on for as long as the bounds allow, so every pause of a client or
 * of a backend is in it.  The functions of src/ that a step stands for are named with
 * it.  test/model/run has the list of configurations and of mutations: each
 * mutation leaves out one rule, and must be caught by the promise that names it.
 *
 * What is there
 *	- the row in three versions: visible, flushed, on the standby; the counter
 *	  with its timeline likewise.  A commit is: pre-commit, flush, maybe the wait
 *	  for the standby, visible, callback, locks given back.  A crash keeps what
 *	  is flushed, a promotion what the standby has.
 *	- the places of terms in shared memory (place.c), with their states;
 *	  freed on the way when they have run out (sweep)
 *	- the election's heavyweight lock in its three modes
 *	- candidates that bid, renew, release, each in transactions that may stay
 *	  open, be rolled back, also after pre-commit, or be left open for ever; a
 *	  keeper that renews on another connection and knows epochs that are not
 *	  committed; fenced writers; an operator who deposes and drops
 *	- crash, promotion, looks on the standby, a cancelled wait for the standby
 *
 * What is left out
 *	- the look before the lock of a bid: it can only make bids lose, and here
 *	  any bid may go on to the lock
 *	- the queues of locks: who waits is granted the lock when it is free, or
 *	  gives up.  Deadlocks, starvation: none.
 *	- lost replies, except where they differ from slow ones: a holder that was
 *	  not told of a renewal has been promised less
 *	- session terms, external elections, lock_delay, savepoints, several
 *	  elections, the quorum's part in deadlines, an old primary that lives on
 *	- the wall clock stands still, which is the worst that it can do to epochs;
 *	  2^32 epochs of a timeline are TIMELINE here
 *
 * An assertion names its promise by a constant 0 that it contains.
 */

/*
 * Bounds
 */
#ifndef TTL
#define TTL			2			/* ticks */
#endif
#ifndef MAXT
#define MAXT		4			/* ticks altogether */
#endif
#ifndef CALLS
#define CALLS		2			/* of the first candidate */
#endif
#ifndef CALLS2
#define CALLS2		1			/* of the second */
#endif
#ifndef CRASHES
#define CRASHES		0
#endif
#ifndef PROMOTIONS
#define PROMOTIONS	0
#endif
#ifndef WRITES
#define WRITES		1			/* transactions of each writer */
#endif
#define LIMIT		1			/* LE_CHANGE_LIMIT, in ticks */
#define TIMELINE	16
#define NEVER		255

/* States of a place */
#define FREE		0
#define PENDING		1
#define OPEN		2
#define CLOSING		3
#define CLOSED		4

#define MAX(a, b)	((a) > (b) -> (a) : (b))

/*
 * Steps that a run must have taken to show anything: if not, pan lists this as
 * unreached, by its text.
 */
#define reached(what)	printf(what)

/* Names of promises, for assertions */
hidden byte is_P1, is_P2, is_P3, is_P4, is_P5, is_P7;

byte now;						/* CLOCK_MONOTONIC */
byte generation;				/* of backends: a crash ends them all */

/* The row: epoch and holder, who is 0 if nobody leads */
byte v_epoch, v_holder;			/* visible */
byte d_epoch, d_holder;			/* flushed */
byte s_epoch, s_holder;			/* on the standby */

/* The counter of epochs and the timeline of its last use; see epoch.c */
byte counter, counter_tli = 1;
byte d_counter, d_counter_tli = 1;
byte s_counter, s_counter_tli = 1;
byte tli = 1;
byte floor;						/* in shared memory */

/* The election's lock: who has it, how many in RowShareLock */
byte x_lock, sue_lock, rs_locks;

/* Shared memory: two places are enough for one election */
byte p_epoch[2], p_state[2], p_deadline[2];
bit p_unconfirmed[2];			/* until the standby has the term */
byte start;						/* of the incarnation, once it has begun */
bit begun;

#ifdef STANDBY_LOOKS
/* The standby's shared memory */
byte s_start = NEVER;
byte s_place, s_deadline;
#endif

/* What was told, which nobody in the server knows */
byte shown[3];					/* the last epoch that a candidate saw */
byte top;						/* the highest epoch that anybody saw */
byte promise[3];				/* until when a candidate may act */
byte promised[3];				/* by which term */
byte first = NEVER;				/* bid or renewal since the server's start */
byte inherited;					/* the term that was held then */

/* Scratch, used within a step only */
hidden byte i;

/*
 * find() in place.c: i becomes the place of a term, or 2.
 */
#define find(e) \
	i = ((p_state[0] != FREE && p_epoch[0] == e) -> 0 : \
		((p_state[1] != FREE && p_epoch[1] == e) -> 1 : 2))

#define find_free() \
	i = (p_state[0] == FREE -> 0 : (p_state[1] == FREE -> 1 : 2))

inline free_place(n)
{
	p_state[n] = FREE; p_epoch[n] = 0; p_deadline[n] = 0; p_unconfirmed[n] = 0
}

/* flip() */
#define flip(e, from, to) \
	find(e); \
	if \
	:: i < 2 && p_state[i] == from -> p_state[i] = to \
	:: else \
	fi

/*
 * lock_shared(): the first who asks begins the incarnation.  The ghost knows
 * the same by itself.
 */
#define look() \
	if \
	:: !begun -> begun = 1; start = now \
	:: else \
	fi; \
	if \
	:: first == NEVER -> first = now \
	:: else \
	fi

/* le_place_forgotten_deadline() */
#ifdef M_NO_GRACE
#define forgotten_deadline	start
#else
#define forgotten_deadline	(start + TTL)
#endif

/* le_standby_has(): has the standby a term?  With too much it has it too. */
#ifdef SYNC
#define standby_has(e)		(s_epoch >= e)
#else
#define standby_has(e)		1
#endif

#define lapsed(e)			(i == 2 -> now >= forgotten_deadline : \
	(p_state[i & 1] == CLOSED || now >= p_deadline[i & 1]))

/* is_live() */
#ifdef M_PENDING_RENEWABLE
#define state_allows(n)		(p_state[n] == OPEN || p_state[n] == PENDING)
#else
#ifdef M_CLOSING_RENEWABLE
#define state_allows(n)		(p_state[n] == OPEN || p_state[n] == CLOSING)
#else
#define state_allows(n)		(p_state[n] == OPEN)
#endif
#endif
#ifdef M_RENEW_LAPSED
#define time_allows(n)		1
#else
#define time_allows(n)		(now < p_deadline[n])
#endif
#ifdef M_UNCONFIRMED_RENEWABLE
#define standby_allows(n)	1
#else
#define standby_allows(n)	(!p_unconfirmed[n] || standby_has(p_epoch[n]))
#endif
#define is_live(n)			(state_allows(n) && time_allows(n) && standby_allows(n))

/*
 * draw() in epoch.c, with a wall clock that stands still.
 */
#ifdef M_NO_JUMP
#define share				1
#define step_ahead			1
#else
#define share				(TIMELINE * (MAX(tli, counter_tli) - 1) + 1)
#define step_ahead			(1 + (counter_tli < tli -> TIMELINE * (tli - counter_tli) : 0))
#endif
#ifdef M_NO_FLOOR
#define above_floor			0
#else
#define above_floor			(floor + 1)
#endif

#ifdef M_EPOCH_OF_ROW
#define draw(row) counter = (row) + 1
#else
#define draw(row) \
	i = MAX(share, (row) + 1); \
	i = MAX(i, above_floor); \
	if \
	:: counter >= share -> i = MAX(i, counter + step_ahead) \
	:: else \
	fi; \
	counter = i; counter_tli = tli; floor = MAX(floor, i)
#endif

/* Somebody sees an epoch: nobody has seen it before, nor a higher one. */
#define show(e) \
	assert(is_P1 || e > top); \
	top = e

#define flush_counter() \
	d_counter = counter; d_counter_tli = counter_tli

/* Commits of the row: what is flushed, what becomes visible */
#define flush_row(e, h) \
	d_epoch = e; d_holder = h; \
	flush_counter()

/* Nobody else has been told that it leads until later. */
#define nobody_promised(me)	assert(is_P4 || promise[3 - (me)] <= now)

/* A holder is told that it leads. */
#ifdef WITHOUT_P7
#define acknowledge(e)		skip
#else
#define acknowledge(e)		assert(is_P7 || (d_epoch >= e && standby_has(e)))
#endif
#define tell(c, e, until) \
	acknowledge(e); \
	promise[c] = MAX(promise[c], until); promised[c] = e

/*
 * le_place_renew(), one step under the table's lock.
 */
inline renew_place(whom, term)
{
	d_step {
		look();
		find(term);
		found = (i < 2);
		if
		:: i < 2 && is_live(i & 1) ->
			p_deadline[i] = MAX(p_deadline[i], now + TTL);
			tell(whom, term, p_deadline[i])
		:: else
		fi;
		i = 0
	}
}

/*
 * le_renewal_renew(): by the place, and if there is none, by the row, from
 * which reclaim() makes the place again.
 */
inline renew(cand, ep)
{
	renew_place(cand, ep);
	if
	:: !found ->
#ifndef M_RECLAIM_NO_LOCK
		/* le_lock_poll(), or it gives up */
		if
		:: atomic { x_lock == 0 -> rs_locks++; locked = 1 }
		:: true
		fi;
#else
		locked = 1;
#endif
		if
		:: locked ->
			/* le_view_read() */
			d_step {
				find(ep);
				found = (v_holder != 0 && v_epoch == ep && !lapsed(ep));
#ifndef M_RECLAIM_CONFIRMED
				found = found && standby_has(ep);
#endif
				i = 0
			};
			/* le_place_make() */
			d_step {
				if
				:: found ->
					find(ep);
					if
					:: i == 2 ->
						find_free();
						if
						:: i < 2 ->
							p_state[i] = OPEN; p_epoch[i] = ep;
							p_deadline[i] = start + TTL;
#if defined(SYNC) && !defined(M_RECLAIM_CONFIRMED)
							p_unconfirmed[i] = 1
#endif
						:: else
						fi
					:: else
					fi;
					i = 0
				:: else
				fi;
#ifndef M_RECLAIM_NO_LOCK
				rs_locks--;
#endif
				locked = 0
			};
			if
			:: atomic { found -> reached("reclaimed") };
				renew_place(cand, ep)
			:: else
			fi
		:: else
		fi
	:: else
	fi;
	found = 0
}

#define unlock(me) \
	if \
	:: x_lock == me -> x_lock = 0 \
	:: else \
	fi; \
	if \
	:: sue_lock == me -> sue_lock = 0 \
	:: else \
	fi

/* The commit waits for the standby, SyncRepWaitForLSN() */
#define replicated	(s_epoch == d_epoch && s_holder == d_holder)

/*
 * The end of a term, in the transaction of whoever ends it: le_election_release()
 * and depose(), the commit, and the callbacks of change.c.  The caller has the
 * lock and has read the row.
 */
inline end_term(who, term, whose, row_epoch, limit)
{
	/* le_change_note(LE_CHANGE_ENDED), the row is written */
#ifdef M_CLOSE_AT_CALL
	d_step { flip(term, OPEN, CLOSED); i = 0 };
#endif
	if
	:: true							/* committed at once or later */
	:: goto aborted
#ifdef HANG
	:: goto hung
#endif
	fi;
	/* le_change_pre_commit() */
#ifndef M_CLOSE_AFTER_COMMIT
	d_step { flip(term, OPEN, CLOSING); i = 0 };
#endif
	if
	:: true
	:: goto aborted					/* by another extension's callback */
	fi;
	d_step { flush_row(row_epoch, 0) };
#ifdef SYNC
	if
	:: replicated
#ifdef CANCEL
	:: true
#endif
	fi;
#endif
	d_step {
		v_epoch = row_epoch; v_holder = 0;
		promise[whose] = 0; promised[whose] = 0
	};
	/* le_change_commit(); then the locks go */
	atomic {
		reached("ended");
		d_step {
			find(term);
			if
			:: i < 2 -> free_place(i)
			:: else
			fi;
			i = 0;
			unlock(who)
		}
	};
	goto done;
#ifdef HANG
hung:
	/* sitter.c */
end_hung:
#ifndef M_NO_SITTER
	(now >= limit);
#else
	false;
#endif
#endif
aborted:
	/* le_change_abort() */
	atomic {
		reached("end-undone");
#ifdef M_NOT_REOPENED
		find(term);
		if
		:: i < 2 -> free_place(i)
		:: else
		fi;
#else
		flip(term, CLOSING, OPEN);
#endif
		i = 0;
		unlock(who)
	};
done:
	skip
}

/*
 * le_election_acquire(), from the lock on, and the commit.
 */
inline acquire()
{
#ifdef M_SNAPSHOT_ACQUIRE
	d_step { row = v_epoch; holder = v_holder };
#endif
	/*
	 * le_lock_try(ShareUpdateExclusiveLock), and le_view_read() under it: what
	 * the row says stays so, and what has lapsed stays lapsed.
	 */
	d_step {
		found = 0;
		if
		:: sue_lock == 0 && x_lock == 0 ->
			sue_lock = me;
			look();
#ifndef M_SNAPSHOT_ACQUIRE
			row = v_epoch; holder = v_holder;
#endif
			find(row);
			found = (holder == 0 || lapsed(row));
			i = 0
		:: else							/* busy */
		fi
	};
	if
	:: found
	:: else ->
#ifdef M_LOSER_KEEPS_LOCK
end_loser:
		sue_lock != me;
#endif
		atomic { reached("lost"); unlock(me) };
		goto bid_done
	fi;
	/*
	 * le_lock_change(), which may give up.  Under that lock
	 * le_place_close_lapsed(), and grant(): le_epoch_draw(), the clock,
	 * le_place_make().
	 */
	if
	:: d_step {
#ifdef M_NO_WAIT_FOR_COMMITS
			x_lock == 0 -> x_lock = me;
#else
			x_lock == 0 && rs_locks == 0 -> x_lock = me;
#endif
			found = 1;
			if
			:: holder != 0 ->
				find(row);
				found = lapsed(row);
				if
				:: found ->
					assert(is_P5 || row != inherited || now >= first + TTL);
#ifndef M_NO_CLOSE
					if
					:: i < 2 -> p_state[i] = CLOSED
					:: else
					fi
#endif
				:: else
				fi
			:: else
			fi;
			if
			:: found ->
				draw(row);
				e = counter;
				until = now + TTL;
				find_free();
				found = (i < 2);
				if
				:: i < 2 ->
					p_state[i] = PENDING; p_epoch[i] = e;
					p_deadline[i] = until
				:: else				/* no room */
				fi
			:: else
			fi;
			i = 0
		}
	:: found = 0
	fi;
	if
	:: found
	:: else -> atomic { unlock(me) }; goto bid_done
	fi;
	if
	:: true								/* the commit tells the epoch */
	:: d_step {
			/* le_epoch_flush(), and the client sees it */
#ifndef M_TOLD_BEFORE_FLUSH
			flush_counter();
#endif
			show(e);
			shown[me] = e; seen = 1
		};
		if
		:: true
		:: goto bid_undone
#ifdef HANG
		:: goto bid_hung
#endif
		fi
	fi;
#ifdef M_TAKER_UNLOCKS_EARLY
	d_step { unlock(me) };
#endif
#ifndef M_COMMIT_OFF
	d_step { nobody_promised(me); flush_row(e, me) };
#endif
#ifdef SYNC
	if
	:: atomic { replicated -> reached("confirmed") }
#ifdef CANCEL
	:: atomic { !replicated -> reached("cancelled"); unacknowledged = 1 }
#endif
	fi;
#endif
	d_step {
		nobody_promised(me);
		if
		:: !seen -> show(e)
		:: else
		fi;
		v_epoch = e; v_holder = me; shown[me] = e
	};
	/* le_change_commit(), le_place_open() */
	d_step {
		find(e);
		if
		:: i < 2 && p_state[i & 1] == PENDING ->
			p_state[i] = OPEN;
			p_unconfirmed[i] = unacknowledged;
			i = 1 - i;
			free_place(i)
		:: else
		fi;
		i = 0
	};
	/* The locks go, and the client has its answer. */
	atomic {
		reached("granted");
		unlock(me);
		if
#ifndef M_CANCEL_SHOWN
		:: unacknowledged				/* lose_client() */
#endif
		:: else -> tell(me, e, until)
		fi
	};
	goto bid_done;
#ifdef HANG
bid_hung:
	/* sitter.c */
end_hung_bid:
#ifndef M_NO_SITTER
	atomic { now >= until -> reached("hung") };
#else
	false;
#endif
#endif
bid_undone:
	/* le_change_abort() */
	atomic {
		reached("grant-undone");
		find(e);
		if
		:: i < 2 -> free_place(i)
		:: else
		fi;
		i = 0;
		unlock(me)
	};
bid_done:
	skip
}

/* le_election_release(): the lock, the row under it, then the rest */
inline release()
{
	d_step {
		e = shown[me];
		found = (x_lock == 0 && rs_locks == 0 && sue_lock == 0 &&
				 v_holder != 0 && v_epoch == e);
		if
		:: found -> x_lock = me; until = now + LIMIT
		:: else
		fi
	};
	if
	:: found -> end_term(me, e, me, e, until)
	:: else							/* gives up, or is not current */
	fi
}

proctype Candidate(byte me; byte bound)
{
	byte calls, born, e, row, holder, until;
	bit found, locked, seen, unacknowledged;

	do
	:: calls < bound && now <= MAXT ->
		atomic { calls++; born = generation };
		{
			if
			:: acquire()
			:: shown[me] != 0 ->
				e = shown[me];
				renew(me, e)
#ifdef RELEASE
			:: shown[me] != 0 -> release()
#endif
			fi
		} unless { generation != born };
		d_step {
			born = 0; e = 0; row = 0; holder = 0; until = 0;
			found = 0; locked = 0; seen = 0; unacknowledged = 0
		}
	:: else -> break
	od
}

#ifdef KEEPER
/* Renews for the first candidate, by another connection. */
proctype Keeper()
{
	byte calls, born, e;
	bit found, locked;

end:
	do
	:: atomic {
			calls < KEEPER && shown[1] != 0 ->
			e = shown[1]; calls++; born = generation
		};
		{
			renew(1, e)
		} unless { generation != born };
		d_step { born = 0; e = 0; found = 0; locked = 0 }
	:: calls == KEEPER -> break
	od
}
#endif

#if WRITERS > 0
/*
 * A fenced transaction of whoever leads, maybe paused at any step: token.c.
 */
proctype Writer()
{
	byte writes, born, e;
#ifdef M_SNAPSHOT_FENCE
#define row_says(e)			1		/* as when the transaction began */
#else
#define row_says(e)			(v_epoch == e && v_holder != 0)
#endif
#define is_current(e)		(d_epoch == e && d_holder != 0 && \
							 v_epoch == e && v_holder != 0)

end:
	do
	/* The first use of the token reads the row. */
	:: atomic {
#ifdef M_LOCK_AT_FIRST_USE
			writes < WRITES && v_holder != 0 && x_lock == 0 -> rs_locks++;
#else
			writes < WRITES && v_holder != 0 ->
#endif
			e = v_epoch; writes++; born = generation
		};
		{
			if
			:: true
			:: goto undone
#ifdef HANG
			:: atomic { true -> reached("idle") }; goto end_idle
#endif
			fi;
			/* le_token_pre_commit(): poll_lock(), which may give up */
#if !defined(M_FENCE_NO_LOCK) && !defined(M_STATEMENT_ONLY) && !defined(M_LOCK_AT_FIRST_USE)
			if
			:: atomic { x_lock == 0 -> rs_locks++ }
			:: goto undone
			fi;
#endif
			/* read_row(), require_current() */
#ifndef M_STATEMENT_ONLY
			if
			:: row_says(e)
			:: else ->
#ifndef M_FENCE_NO_LOCK
				atomic { reached("stale"); rs_locks-- };
#endif
				goto undone
			fi;
#endif
#ifdef M_FENCE_UNLOCKS_EARLY
			rs_locks--;
#endif
			/* The commit record */
			assert(is_P2 || is_current(e));
			/* It becomes visible, and then the lock goes. */
			atomic {
				reached("fenced");
				assert(is_P2 || is_current(e));
#if !defined(M_FENCE_NO_LOCK) && !defined(M_STATEMENT_ONLY) && !defined(M_FENCE_UNLOCKS_EARLY)
				rs_locks--
#endif
			};
			goto undone;
#ifdef HANG
end_idle:
			false;
#endif
undone:
			skip
		} unless { generation != born };
		d_step { born = 0; e = 0 }
	:: writes == WRITES -> break
	od
}
#endif

#ifdef OPERATOR
/* Deposes, le_leader_depose(), or drops, le_leader_drop(). */
proctype Operator()
{
#define me 3
	byte calls, born, e, holder, next, until;

end:
	do
	/* le_lock_queue(), le_lock_change() */
	:: atomic {
			calls < OPERATOR && v_epoch != 0 &&
			x_lock == 0 && rs_locks == 0 && sue_lock == 0 ->
			x_lock = me; sue_lock = me;
			calls++; born = generation
		};
		{
			/* le_view_read() */
			atomic {
				e = v_epoch; holder = v_holder; until = now + LIMIT;
				if
#ifdef DEPOSE
				:: holder != 0 ->
					d_step {
						draw(e);
						next = counter;
						flush_counter();
						show(next)
					}
#endif
#ifdef DROP
				:: e != 0 && holder == 0
#endif
				:: else -> unlock(me); goto done
				fi
			};
			end_term(me, e, holder, next, until)
#ifdef DROP_EXTENSION
			/* The counter goes with the row. */
			if
			:: v_epoch == 0 ->
				d_step { counter = 0; counter_tli = tli; flush_counter() }
			:: true
			fi
#endif
		} unless { generation != born };
		d_step { born = 0; e = 0; holder = 0; next = 0; until = 0 }
	:: calls == OPERATOR -> break
	od
#undef me
}
#endif

/* Nothing of shared memory is left, and no backend. */
#define restart() \
	generation++; \
	x_lock = 0; sue_lock = 0; rs_locks = 0; \
	free_place(0); free_place(1); \
	begun = 0; start = 0; floor = 0; first = NEVER; \
	inherited = (v_holder != 0 -> v_epoch : 0)

/* Time, faults, and what others do to the memory or on the standby */
proctype Environment()
{
	byte crashes, promotions;

end:
	do
	:: now < MAXT -> now++
#if CRASHES > 0
	:: d_step {
			crashes < CRASHES ->
			crashes++;
			v_epoch = d_epoch; v_holder = d_holder;
			counter = d_counter; counter_tli = d_counter_tli;
			/* Who was released or deposed has been promised no more. */
			if
			:: v_holder == 0 -> promise[1] = 0; promise[2] = 0
			:: else
			fi;
			restart()
		}
#endif
#if PROMOTIONS > 0 || defined(SYNC)
	:: d_step {
			s_epoch != d_epoch || s_holder != d_holder || s_counter != d_counter ->
			s_epoch = d_epoch; s_holder = d_holder;
			s_counter = d_counter; s_counter_tli = d_counter_tli
		}
#endif
#if PROMOTIONS > 0
	:: d_step {
			promotions < PROMOTIONS ->
			promotions++;
#ifndef SYNC
			/* Nothing is promised of terms that the standby has not got. */
			i = 1;
			do
			:: i < 3 ->
				if
				:: s_holder != i || s_epoch != promised[i] -> promise[i] = 0
				:: else
				fi;
				i++
			:: else -> break
			od;
			i = 0;
#endif
			v_epoch = s_epoch; v_holder = s_holder;
			d_epoch = s_epoch; d_holder = s_holder;
			counter = s_counter; counter_tli = s_counter_tli;
			d_counter = s_counter; d_counter_tli = s_counter_tli;
			tli++;
			restart();
#ifdef M_KEEPS_INCARNATION
			if
			:: s_start != NEVER -> begun = 1; start = s_start
			:: else
			fi;
#endif
#ifdef M_PLACE_IN_RECOVERY
			if
			:: s_place != 0 ->
				p_epoch[0] = s_place; p_state[0] = OPEN;
				p_deadline[0] = s_deadline
			:: else
			fi;
#endif
		}
#endif
#ifdef STANDBY_LOOKS
	/* leader_status on the standby, which makes nothing */
	:: d_step {
			s_start == NEVER && s_holder != 0 ->
			s_start = now;
			s_place = s_epoch; s_deadline = now + TTL
		}
#endif
#ifdef SWEEP
	/* sweep(), for the need of other elections */
	:: d_step {
			i = 0;
			do
			:: i < 2 ->
				if
				:: (p_state[i] == OPEN || p_state[i] == CLOSED) &&
					now >= p_deadline[i] && standby_allows(i) ->
					free_place(i)
#ifdef M_SWEEP_PENDING
				:: p_state[i] == PENDING && p_epoch[i] != v_epoch ->
					free_place(i)
#endif
				:: else
				fi;
				i++
			:: else -> break
			od;
			i = 0
		}
#endif
#ifdef HANG
	/*
	 * Everything has come to rest; who hangs, hangs.  Time goes by, and every
	 * lease has run out.  Then no lock may be in the way of a bid.
	 */
	:: timeout -> break
#endif
	od;
#ifdef HANG
	atomic { reached("rest"); now = NEVER - TTL };
	timeout;
	assert(is_P3 || (x_lock == 0 && sue_lock == 0 && rs_locks == 0));
#endif
}

init
{
	atomic {
		run Candidate(1, CALLS);
		run Candidate(2, CALLS2);
#ifdef KEEPER
		run Keeper();
#endif
#if WRITERS > 0
		run Writer();
#endif
#if WRITERS > 1
		run Writer();
#endif
#ifdef OPERATOR
		run Operator();
#endif
		run Environment()
	}
}
