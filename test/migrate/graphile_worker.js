// An old worker: graphile-worker itself. Its task fails now and then, or leaves the effect of its unit.
//
//	node graphile_worker.js CONNECTION-STRING VERSION SEED [FAILURES]
//
// VERSION: one of those in package.json, such as 0.18. FAILURES: one task in so many fails, 0: none; without it, it only makes its schema.
// SIGTERM ends it when it has finished what it holds.
const [connectionString, version, seed, failures] = process.argv.slice(2);
let state = Number(seed) % 2147483647 || 1;
const random = n => (state = state * 48271 % 2147483647) % n;

(async () => {
  const { run, runMigrations, Logger } = await import(require.resolve(`graphile-worker-${version}`));
  if (failures === undefined) return runMigrations({ connectionString });
  const runner = await run({
    connectionString,
    concurrency: 3,
    preset: { worker: { completeJobBatchDelay: 0, failJobBatchDelay: 0 } }, // see docs/migrating.md
    pollInterval: 100,
    logger: new Logger(() => () => {}),
    taskList: {
      work: async ({ unit }, helpers) => {
        await new Promise(resolve => setTimeout(resolve, 10));
        if (Number(failures) && random(Number(failures)) === 0) throw new Error('not now');
        await helpers.query("INSERT INTO effects (unit, side, attempts) VALUES ($1, 'old', $2)", [unit, helpers.job.attempts - 1]);
      },
    },
  });
  await runner.promise;
})().catch(error => { console.error(error); process.exit(1); });
