// An old producer and an old worker: pg-boss itself.
//
//	node pg_boss.js CONNECTION-STRING VERSION SCHEMA SEED create|produce|work
//
// VERSION: one of those in package.json, such as 12. create: makes the schema and the queues mail and other. produce: a unit of work with its job, in one
// transaction, again and again; with version 12 now and then two, of which the second waits for the first. work: a job fails now and then,
// or leaves the effect of its unit. SIGTERM ends it when it has finished what it holds.
const { Client, Pool } = require('pg');

const [connectionString, version, schema, seed, what] = process.argv.slice(2);
let state = Number(seed) % 2147483647 || 1;
const random = n => (state = state * 48271 % 2147483647) % n;
const pause = ms => new Promise(resolve => setTimeout(resolve, ms));
let stopping = false;
process.on('SIGTERM', () => { stopping = true; });

const steps = {
  async create(boss) {
    await boss.createQueue('mail', { retryLimit: 20, retryDelay: 0, expireInSeconds: 600 });
    await boss.createQueue('other');
  },

  async produce(boss) {
    const db = new Client({ connectionString });
    await db.connect();
    while (!stopping) {
      const key = `old ${random(10)}`;
      await db.query('BEGIN');
      const { rows: [{ unit }] } = await db.query('SELECT make_unit($1) AS unit', [key]);
      const options = { db: { executeSql: (sql, values) => db.query(sql, values) } };
      if (version >= 12 && random(10) === 0) {
        const { rows: [{ unit: next }] } = await db.query('SELECT make_unit($1) AS unit', [key]);
        await boss.flow([{ ref: 'a', name: 'mail', data: { unit } }, { ref: 'b', name: 'mail', data: { unit: next, after: unit }, dependsOn: ['a'] }], options);
      } else if (!await boss.send('mail', { unit }, { priority: random(3), ...options })) {
        throw new Error('no id');
      }
      await db.query(random(10) ? 'COMMIT' : 'ROLLBACK');
      await pause(10);
    }
    await db.end();
  },

  async work(boss) {
    const db = new Pool({ connectionString });
    for (let worker = 0; worker < 3; worker++) {
      await boss.work('mail', { batchSize: 5, pollingIntervalSeconds: 0.5, includeMetadata: true }, async jobs => {
        await pause(100);
        if (random(10) === 0) throw new Error('not now');
        for (const job of jobs) await db.query("INSERT INTO effects (unit, side, attempts) VALUES ($1, 'old', $2)", [job.data.unit, job.retryCount]);
      });
    }
    while (!stopping) await pause(50);
    await boss.stop({ graceful: true, wait: true });
    await db.end();
  },
};

(async () => {
  const { PgBoss, default: only } = await import(require.resolve(`pg-boss-${version}`));
  const boss = new (PgBoss ?? only)({ connectionString, schema, schedule: false, supervise: what === 'work', flowIntervalSeconds: 1 });
  boss.on('error', error => { console.error(error); process.exit(1); });
  await boss.start();
  await steps[what](boss);
  await boss.stop({ graceful: true, wait: true });
})().catch(error => { console.error(error); process.exit(1); });
