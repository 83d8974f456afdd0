// How fast does graphile-worker work off a backlog of no-op jobs? `run_graphile_worker.cjs prepare|work SETTINGS`.
// Completions are batched, so done is when its table is empty, not when the last task has run.

"use strict";

const { setTimeout: sleep } = require("node:timers/promises");
const { performance } = require("node:perf_hooks");
const { Logger, makeWorkerUtils, run } = require("graphile-worker");
const { Pool } = require("pg");

const PAGE = 5000;
const POLL_MS = 2;

async function prepare({ url, jobs }) {
  const utils = await makeWorkerUtils({ connectionString: url });
  await utils.migrate();
  for (let first = 0; first < jobs; first += PAGE) {
    const numbers = Array.from({ length: Math.min(PAGE, jobs - first) }, (_, index) => first + index);
    await utils.addJobs(numbers.map((n) => ({ identifier: "noop", payload: { n } })));
  }
  await utils.release();
}

function presetFor({ url, concurrency, local_queue: size, batch_delay_ms: delayMs }) {
  return {
    worker: {
      connectionString: url,
      concurrentJobs: concurrency,
      maxPoolSize: concurrency + 1,
      localQueue: { size, refetchDelay: { durationMs: 10 } },
      completeJobBatchDelay: delayMs,
      failJobBatchDelay: delayMs,
      logger: new Logger(() => () => {}),
    },
  };
}

async function work(settings) {
  const observer = new Pool({ connectionString: settings.url, max: 1 });
  await observer.query("SELECT 1");
  let left = settings.jobs;
  let allRan;
  const ran = new Promise((resolve) => (allRan = resolve));
  const noop = async () => {
    left -= 1;
    if (left === 0) allRan();
  };

  const began = performance.now();
  const beganCpu = process.cpuUsage();
  const runner = await run({ preset: presetFor(settings), taskList: { noop }, noHandleSignals: true });
  const inTime = await Promise.race([ran.then(() => true), sleep(settings.limit_s * 1000, false, { ref: false })]);
  if (!inTime) throw new Error(`${left} jobs were left after ${settings.limit_s} s`);
  while ((await observer.query("SELECT EXISTS (SELECT FROM graphile_worker.jobs) AS waiting")).rows[0].waiting) {
    await sleep(POLL_MS);
  }
  const seconds = (performance.now() - began) / 1000;
  const cpu = process.cpuUsage(beganCpu);

  await runner.stop();
  await observer.end();
  const { version } = require("graphile-worker/package.json");
  return { seconds, cpu_s: (cpu.user + cpu.system) / 1e6, version: `graphile-worker ${version}, Node ${process.versions.node}` };
}

async function main(step, settings) {
  if (step === "prepare") return prepare(settings);
  process.stdout.write(JSON.stringify(await work(settings)) + "\n");
}

main(process.argv[2], JSON.parse(process.argv[3])).then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
