// The memcpy ceiling: every core copies its own 256 MiB. Prints GB/s (read and written bytes together) as JSON.
import { availableParallelism } from 'node:os';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';

const bytes = 1 << 28;
const repeats = 5;

if (isMainThread) {
  const rate = async (threads) => {
    const gate = new Int32Array(new SharedArrayBuffer(4));
    const times = await Promise.all(
      Array.from({ length: threads }, () => {
        const worker = new Worker(new URL(import.meta.url), { workerData: { gate, threads } });
        return new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject));
      }),
    );
    return (2 * bytes * threads) / Math.max(...times) / 1e6;
  };
  const threads = availableParallelism();
  console.log(JSON.stringify({ oneThread: await rate(1), allThreads: await rate(threads), threads }));
} else {
  const { gate, threads } = workerData;
  const from = new Uint8Array(bytes).fill(1);
  const to = new Uint8Array(bytes).fill(2);
  Atomics.add(gate, 0, 1);
  while (Atomics.load(gate, 0) < threads) Atomics.wait(gate, 0, Atomics.load(gate, 0), 1);
  const times = [];
  for (let i = 0; i < repeats; i++) {
    const start = performance.now();
    to.set(from);
    times.push(performance.now() - start);
  }
  parentPort.postMessage(times.sort((a, b) => a - b)[repeats >> 1]);
}
