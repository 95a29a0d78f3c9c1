// Delivers each message at least once. SIGTERM finishes the batch at hand and leaves no lease;
// the messages of a worker that dies, or loses its connection or leases, go to another worker.
import { hostname } from 'node:os';
import pg from 'pg';
import { deliver } from './deliver.js';

const ME = `${hostname()}:${process.pid}`;
let stopping = false;
let wake = () => {}; // ends the wait

const stop = () => { stopping = true; wake(); };
process.on('SIGINT', stop).on('SIGTERM', stop);

function wait(ms) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    wake = () => { clearTimeout(timer); resolve(); };
  });
}

async function work(db) {
  let woken = false;
  let pause = 100;
  const notice = () => { woken = true; wake(); };
  db.on('notification', notice).on('error', notice); // of a lost connection the next query tells
  await db.connect();
  // Before the first claim; not through a pool in transaction mode, which has no LISTEN.
  if (!process.env.POOLED) await db.query('LISTEN outbox_pending');
  while (!stopping) {
    woken = false;
    const { rows: batch } = await db.query("SELECT * FROM outbox.claim($1, 20, '30 s')", [ME]);
    if (batch.length === 0) {
      if (!woken && !stopping) await wait(pause);
      pause = Math.min(2 * pause, 1_000);
      continue;
    }
    pause = 100;
    // Side by side, each with a time limit: together they end well within the lease.
    const outcomes = await Promise.all(batch.map(deliver));
    const { rows } = await db.query(
      'SELECT * FROM outbox.complete_batch($1, $2, $3, $4, error_codes => $5)',
      [ME, batch.map((m) => m.outbox_id), batch.map((m) => m.lease_token),
        outcomes.map((o) => o.state), outcomes.map((o) => o.errorCode)],
    );
    for (const { outbox_id: id, error } of rows) {
      if (error) console.error('not recorded:', id, error); // P7002: another worker has it
    }
  }
}

while (!stopping) {
  const db = new pg.Client({ connectionString: process.env.DATABASE_URL, keepAlive: true });
  try {
    await work(db);
  } catch (error) { // a lost connection: connect, LISTEN and claim again
    console.error('trying again:', error.message);
    if (!stopping) await wait(1_000);
  }
  await db.end().catch(() => {});
}
