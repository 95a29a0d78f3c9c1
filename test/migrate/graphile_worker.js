// An old worker: graphile-worker itself. Its task fails now and then, or leaves the effect of its unit.
//
//	node graphile_worker.js CONNECTION-STRING SEED FAILURES
//
// FAILURES: one task in so many fails, 0: none. SIGTERM ends it when it has finished what it holds.
const { run } = require('graphile-worker');

const [connectionString, seed, failures] = process.argv.slice(2);
let state = Number(seed) % 2147483647 || 1;
const random = n => (state = state * 48271 % 2147483647) % n;

(async () => {
  const { Logger } = require('graphile-worker');
  const runner = await run({
    connectionString,
    concurrency: 3,
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
