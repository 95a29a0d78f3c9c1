// Places an order for each item that is named, with Drizzle. The message is stored by the order's
// own transaction: together with the order or not at all.
import { sql } from 'drizzle-orm';
import { db, orders, pool } from './schema.js';

function placeOrder(item) {
  return db.transaction(async (tx) => {
    const [order] = await tx.insert(orders).values({ item }).returning();
    await tx.execute(sql`
      SELECT outbox.enqueue('order.placed', ${JSON.stringify(order)}::jsonb,
        aggregate_type => 'order', aggregate_id => ${String(order.id)})`);
    return order.id;
  });
}

for (const item of process.argv.slice(2)) {
  try {
    console.log('order', await placeOrder(item));
  } catch (error) {
    console.error(`no order of ${item}: ${error.cause?.message ?? error.message}`);
    process.exitCode = 1;
  }
}
await pool.end();
