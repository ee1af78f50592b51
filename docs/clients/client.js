#!/usr/bin/env node
// A worker that works only while it leads: Node.js and pg.
//
//   client.js ELECTION TTL      connects as the PG* variables of the environment say
//
// Two loops, each with its own connection: one keeps the lease, one works.  A query
// that gets no answer ends by query_timeout, and the worker looks at the deadline
// before every piece of work, so it stops in time also when the server does not
// answer.  What blocks the event loop blocks both: such work belongs into a
// worker thread.
'use strict';

const crypto = require('crypto');
const os = require('os');
const { setTimeout: sleep } = require('timers/promises');
const { Client } = require('pg');

const [election, ttl] = process.argv.slice(2);
const holder = `${os.hostname()} ${process.pid} ${crypto.randomBytes(4).toString('hex')}`;

const BID = `
  SELECT is_leader, epoch,
         extract(epoch FROM step_down_after)::float8 * 1000 AS step_down_after,
         extract(epoch FROM retry_after)::float8 * 1000 AS retry_after
    FROM leader_acquire($1, $2, ttl => $3::interval)`;

const AGAIN = ['40001', '40P01', '55P03', '57014']; // the same piece again, while still leader

const notLeading = { epoch: null, until: 0 };
let lease = notLeading; // replaced as a whole by the keeper
let terminated = false;
const leaving = new AbortController(); // when no more work is done

const now = () => performance.now(); // monotonic, in milliseconds

async function connect() {
  const client = new Client({
    connectionTimeoutMillis: 3000,
    query_timeout: 3000, // on this side
    statement_timeout: 3000, // on the server
    keepAlive: true,
  });
  client.on('error', () => {}); // the next query tells
  await client.connect();
  return client;
}

// Without waiting for a server that does not answer.
function drop(client) {
  if (client) client.connection.stream.destroy();
}

// Bids and renews.  After an error the old deadline still holds.
async function keepLease() {
  let client;
  while (!leaving.signal.aborted) {
    const asked = now();
    let pause = 500;
    try {
      client = client || (await connect());
      const bid = (await client.query(BID, [election, holder, ttl])).rows[0];
      // A bigint comes as a string, and is sent back as one.
      lease = bid.is_leader ? { epoch: bid.epoch, until: asked + bid.step_down_after } : notLeading;
      pause = bid.retry_after;
    } catch (error) {
      console.log('no answer to a bid:', error.message);
      drop(client);
      client = undefined;
    }
    await sleep(pause, undefined, { signal: leaving.signal }).catch(() => {});
  }
  drop(client);
}

async function pieceOfWork(client) {
  await client.query('INSERT INTO work (worker) VALUES ($1)', [holder]);
  await sleep(100); // where real work takes its time
}

async function fenced(client, epoch) {
  await client.query('BEGIN');
  try {
    await client.query('SELECT leader_fence($1, $2)', [election, epoch]);
    await pieceOfWork(client);
    await client.query('COMMIT');
  } catch (error) {
    // Without an SQLSTATE there is no connection to roll back on.
    if (error.code) await client.query('ROLLBACK').catch(() => {});
    throw error;
  }
}

async function work() {
  let client;
  let acting = null;
  let refused;
  while (!terminated) {
    let { epoch, until } = lease;
    if (epoch === refused || now() >= until) epoch = null;
    if (epoch !== acting) console.log(epoch ? `leading ${epoch}` : 'not leading');
    acting = epoch;
    if (!acting) {
      await sleep(20);
      continue;
    }
    try {
      client = client || (await connect());
      await fenced(client, epoch);
    } catch (error) {
      // The driver's own errors have other codes, as ECONNRESET.
      const state = /^[0-9A-Z]{5}$/.test(error.code) ? error.code : '';
      console.log('refused', state || error.message);
      if (state === 'LE001') {
        refused = epoch; // replaced or deposed: never again with this one
      } else if (AGAIN.includes(state)) {
        await sleep(50);
      } else if (!client || state === '' || /^(08|57P)/.test(state)) {
        drop(client);
        client = undefined;
        await sleep(500);
      } else {
        drop(client);
        throw error; // LE002 and LE003 too: a mistake, which no repetition mends
      }
    }
  }
  drop(client);
}

async function release(epoch) {
  const client = await connect();
  await client.query('SELECT leader_release($1, $2)', [election, epoch]);
  drop(client);
  console.log('released', epoch);
}

async function main() {
  for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => { terminated = true; });
  const keeper = keepLease();
  try {
    await work();
  } finally {
    // Only when no more is done: the next leader begins at once.
    leaving.abort();
    await keeper;
    if (lease.epoch) await release(lease.epoch);
  }
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
