// Places an order for each item that is named. An order and its message are stored together or not
// at all, and an order that fails leaves the pool a connection that is ready for the next one.
import pg from 'pg';

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
pool.on('error', (error) => console.error('an idle connection was lost:', error.message));

async function transaction(work) {
  const db = await pool.connect();
  let lost;
  try {
    await db.query('BEGIN');
    const result = await work(db);
    await db.query('COMMIT');
    return result;
  } catch (error) {
    await db.query('ROLLBACK').catch((failure) => { lost = failure; });
    throw error;
  } finally {
    db.release(lost); // closes it, if it could not even roll back
  }
}

function placeOrder(item) {
  return transaction(async (db) => {
    const { rows } = await db.query('INSERT INTO orders (item) VALUES ($1) RETURNING id', [item]);
    const [{ id }] = rows; // a bigint, which pg returns as a string
    await db.query(
      "SELECT outbox.enqueue('order.placed', $1, aggregate_type => 'order', aggregate_id => $2)",
      [{ id: Number(id), item }, id],
    );
    return id;
  });
}

for (const item of process.argv.slice(2)) {
  try {
    console.log('order', await placeOrder(item));
  } catch (error) {
    console.error(`no order of ${item}: ${error.message}`);
    process.exitCode = 1;
  }
}
await pool.end();
