#!/usr/bin/env python3
"""A worker that works only while it leads: psycopg 3.

    client.py ELECTION TTL      connects as the PG* variables of the environment say

One thread keeps the lease, the main thread works; each has its own connection.
The keeper may hang in a server that does not answer: the worker looks at the
deadline before every piece of work, and so stops in time all the same.
"""

import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections import namedtuple

import psycopg

ELECTION, TTL = sys.argv[1:3]
HOLDER = f"{socket.gethostname()} {os.getpid()} {secrets.token_hex(4)}"

BID = """
    SELECT is_leader, epoch,
           extract(epoch FROM step_down_after)::float8 AS step_down_after,
           extract(epoch FROM retry_after)::float8 AS retry_after
      FROM leader_acquire(%s, %s, ttl => %s::interval)"""

AGAIN = {"40001", "40P01", "55P03", "57014"}  # the same piece again, while still leader
GONE = ("08", "57P")  # the connection is of no more use

Lease = namedtuple("Lease", "epoch until")
NOT_LEADING = Lease(None, 0.0)

lease = NOT_LEADING  # replaced as a whole by the keeper
leave = threading.Event()
terminated = False


def now():
    """Goes on while the machine is suspended, as time.monotonic() does not."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def log(*words):
    print(*words, flush=True)


def connect():
    return psycopg.connect(
        autocommit=True,
        connect_timeout=3,
        tcp_user_timeout=3000,  # a host that is gone
        options=os.environ.get("PGOPTIONS", "") + " -c statement_timeout=3s",
    )


def keep_lease():
    """Bids and renews.  After an error the old deadline still holds."""
    global lease
    conn = None
    pause = 0
    while not leave.wait(pause):
        asked = now()
        try:
            conn = conn or connect()
            row = conn.execute(BID, (ELECTION, HOLDER, TTL)).fetchone()
            is_leader, epoch, step_down_after, pause = row
            lease = Lease(epoch, asked + step_down_after) if is_leader else NOT_LEADING
        except psycopg.Error as error:
            log("no answer to a bid:", error)
            if conn:
                conn.close()
            conn, pause = None, 0.5


def piece_of_work(conn):
    conn.execute("INSERT INTO work (worker) VALUES (%s)", (HOLDER,))
    time.sleep(0.1)  # where real work takes its time


def work():
    conn = None
    acting = refused = None  # epochs
    while not terminated:
        epoch, until = lease
        if epoch == refused or now() >= until:
            epoch = None
        if epoch != acting:
            log("leading", epoch) if epoch else log("not leading")
            acting = epoch
        if not acting:
            time.sleep(0.02)
            continue
        try:
            conn = conn or connect()
            with conn.transaction():
                conn.execute("SELECT leader_fence(%s, %s)", (ELECTION, epoch))
                piece_of_work(conn)
        except psycopg.Error as error:
            state = error.sqlstate or ""
            log("refused", state or error)
            if state == "LE001":
                refused = epoch  # replaced or deposed: never again with this one
            elif state in AGAIN:
                time.sleep(0.05)
            elif state.startswith(GONE) or conn is None or conn.broken:
                if conn:
                    conn.close()
                conn = None
                time.sleep(0.5)
            else:
                raise  # LE002 and LE003 too: a mistake, which no repetition mends


def release(epoch):
    with connect() as conn:
        conn.execute("SELECT leader_release(%s, %s)", (ELECTION, epoch))
    log("released", epoch)


def on_signal(*_):
    global terminated
    terminated = True


signal.signal(signal.SIGTERM, on_signal)
signal.signal(signal.SIGINT, on_signal)
keeper = threading.Thread(target=keep_lease, daemon=True)
keeper.start()
try:
    work()
finally:
    # Only when no more is done: the next leader begins at once.
    leave.set()
    keeper.join(5)
    if lease.epoch:
        release(lease.epoch)
