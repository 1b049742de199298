// A join in a worker thread. Joins run on native threads anyway: a worker is for the JavaScript around them, such as making
// objects of many rows. Tables cross as Arrow IPC bytes, whose memory is transferred and not copied.
import { once } from 'node:events';
import { isMainThread, parentPort, Worker } from 'node:worker_threads';
import { fromRows, join, toIPC, toRows } from 'warpjoin';

if (isMainThread) {
  const orders = toIPC(
    fromRows([
      { customer: 2, total: 20 },
      { customer: 1, total: 5 },
    ]),
  );
  const customers = toIPC(
    fromRows([
      { customer: 1, name: 'Ada' },
      { customer: 2, name: 'Grace' },
    ]),
  );

  const worker = new Worker(new URL(import.meta.url));
  worker.postMessage({ orders, customers }, [orders.buffer, customers.buffer]);
  const [{ bytes, rows }] = await once(worker, 'message');
  console.log(`the worker has made ${rows} objects`);
  for (const { name, total } of toRows(bytes)) console.log(name, total); // bytes are taken wherever tables are
  await worker.terminate();
} else {
  const [{ orders, customers }] = await once(parentPort, 'message');
  const joined = await join(orders, customers, { on: 'customer', maintainOrder: 'left' });
  const objects = toRows(joined); // slow for millions of rows: here it holds nobody up
  const bytes = joined.toIPC();
  parentPort.postMessage({ bytes, rows: objects.length }, [bytes.buffer]);
}
