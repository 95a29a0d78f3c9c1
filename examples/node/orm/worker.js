// Ships each order exactly once, with Drizzle: the shipment and the report of its message are one
// transaction. A worker that dies, or whose lease is lost, has shipped nothing.
import { sql } from 'drizzle-orm';
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { db, pool, shipments } from './schema.js';

const ME = `${hostname()}:${process.pid}`;
const stopping = new AbortController();
process.on('SIGINT', () => stopping.abort()).on('SIGTERM', () => stopping.abort());
const pauseFor = (ms) => sleep(ms, null, { signal: stopping.signal }).catch(() => {});

async function handle({ outbox_id: id, lease_token: token, payload }) {
  try {
    await db.transaction(async (tx) => {
      await tx.insert(shipments).values({ orderId: payload.id });
      await tx.execute(sql`SELECT outbox.complete(${id}, ${token}, ${ME}, 'DISPATCHED')`);
    });
  } catch (error) {
    const code = error.cause?.code ?? error.code ?? error.name;
    if (code === 'P7002') return; // another worker has the message, and ships the order
    // What failed is rolled back. Unlike complete, complete_batch does not raise P7002.
    await db.execute(sql`
      SELECT outbox.complete_batch(${ME}, ARRAY[${id}::uuid], ARRAY[${token}::uuid],
        '{RETRYABLE}', error_codes => ARRAY[${code}])`);
  }
}

async function work() {
  let pause = 100;
  while (!stopping.signal.aborted) {
    // A statement by itself: it is committed before anything is shipped.
    const { rows: batch } = await db.execute(sql`
      SELECT outbox_id, lease_token, payload FROM outbox.claim(${ME}, 10, '30 s')`);
    for (const message of batch) await handle(message);
    pause = batch.length > 0 ? 100 : Math.min(2 * pause, 1_000);
    if (batch.length === 0) await pauseFor(pause);
  }
}

while (!stopping.signal.aborted) {
  try {
    await work();
  } catch (error) { // a lost connection: the pool makes another one
    console.error('trying again:', error.cause?.message ?? error.message);
    await pauseFor(1_000);
  }
}
await pool.end();
