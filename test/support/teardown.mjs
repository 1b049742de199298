// Ends worker threads, and then the process, in the middle of joins: for test/integration/teardown.test.ts.
import { fileURLToPath } from 'node:url';
import { isMainThread, parentPort, Worker } from 'node:worker_threads';
import { makeVector, Table } from 'apache-arrow';
import { join } from '../../dist/index.js';

const rows = 400_000;
const table = () => new Table({ id: makeVector(Int32Array.from({ length: rows }, (_, i) => (i * 7919) % rows)) });
const [left, right] = [table(), table()];

if (isMainThread) {
  for (let round = 0; round < 4; ++round) {
    const worker = new Worker(fileURLToPath(import.meta.url));
    await new Promise((resolve) => worker.once('message', resolve));
    await new Promise((resolve) => setTimeout(resolve, 15 * round));
    await worker.terminate();
  }
  console.log((await join(left, right, { on: 'id' })).numRows);
  void join(left, right, { on: 'id' });
  setTimeout(() => process.exit(0), 10);
} else {
  parentPort.postMessage('ready');
  for (;;) await join(left, right, { on: 'id' });
}
