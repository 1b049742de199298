// Results that no single buffer holds: a cross join of 4.3 GiB of int64, 2.4 GiB of text and a sort of it, and row numbers that
// typed arrays of Node.js 20 do not hold. Needs 12 GiB of memory and a minute or two: `node scripts/trials/large-results.mjs`,
// after `npm run setup`, on the oldest and the newest Node.js. Nothing in it is random.
import assert from 'node:assert/strict';
import { constants } from 'node:buffer';
import { setTimeout } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { makeVector, Table, Utf8, vectorFromArray } from 'apache-arrow';
import { createEngine } from '../../dist/index.js';
import { native } from '../../dist/native.js';

const GiB = 2 ** 30;
setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc');
const gigabytes = (bytes) => `${(bytes / GiB).toFixed(2)} GiB`;
const residentBytes = () => process.memoryUsage().rss;

/** Runs one part and gives its memory back; says what it took. */
async function part(what, body) {
  const start = performance.now();
  const said = await body();
  gc();
  await setTimeout(200);
  gc();
  const seconds = ((performance.now() - start) / 1000).toFixed(1);
  console.log(`${what}: ${said} (${seconds} s, ${gigabytes(residentBytes())} resident afterwards)`);
}

/** Bytes of the table's buffers, none of which is too large. */
function bytesOf(table) {
  let bytes = 0;
  for (const batch of table.batches) {
    for (const { values, valueOffsets, nullBitmap } of batch.data.children) {
      for (const buffer of [values, valueOffsets, nullBitmap]) assert.ok((buffer?.byteLength ?? 0) <= GiB);
      bytes += values.byteLength;
    }
  }
  return bytes;
}

/** Rows at both sides of each cut, and some between. */
function* someRows(table) {
  let begin = 0;
  for (const { numRows } of table.batches) {
    for (const row of [0, 1, Math.floor(numRows / 3), numRows - 2, numRows - 1]) yield begin + Math.max(0, row);
    begin += numRows;
  }
}

console.log(`Node.js ${process.version}, typed arrays of at most ${gigabytes(constants.MAX_LENGTH)}`);
const engine = await createEngine({ device: 'cpu', memoryLimit: '11GiB' });

await part('int64', async () => {
  const [left, right] = [24_000, 24_000];
  const numbers = (length) => makeVector(BigInt64Array.from({ length }, (_, row) => BigInt(row) << 40n));
  const joined = await engine.join(new Table({ a: numbers(left) }), new Table({ b: numbers(right) }), {
    how: 'cross',
    select: ['a'],
  });
  assert.equal(joined.numRows, left * right);
  const column = joined.getChild('a');
  for (const row of someRows(joined)) assert.equal(column.get(row), BigInt(Math.floor(row / right)) << 40n);
  const bytes = bytesOf(joined);
  assert.equal(bytes, left * right * 8);
  return `${gigabytes(bytes)} in ${joined.batches.length} record batches`;
});

await part('text', async () => {
  const [left, right] = [5_000, 5_000];
  const text = (row) => `${row}`.padEnd(104, 'x');
  const texts = vectorFromArray(
    Array.from({ length: left }, (_, row) => text(row)),
    new Utf8(),
  );
  const numbers = makeVector(Int32Array.from({ length: right }, (_, row) => row));
  const joined = await engine.join(new Table({ t: texts }), new Table({ i: numbers }), { how: 'cross' });
  const column = joined.getChild('t');
  for (const row of someRows(joined)) assert.equal(column.get(row), text(Math.floor(row / right)));
  const bytes = bytesOf(joined);
  assert.equal(bytes, left * right * (104 + 4));
  const sorted = await engine.sort(joined, { by: { column: 'i', descending: true } });
  const [t, i] = [sorted.getChild('t'), sorted.getChild('i')];
  for (const row of someRows(sorted)) {
    assert.equal(i.get(row), right - 1 - Math.floor(row / left));
    assert.equal(t.get(row), text(row % left));
  }
  assert.equal(bytesOf(sorted), bytes);
  return `${gigabytes(bytes)} in ${joined.batches.length} record batches, and sorted in ${sorted.batches.length}`;
});

if (constants.MAX_LENGTH === 4 * GiB) {
  const rows = 33_000;
  const side = () => new Table({ a: makeVector(new Int8Array(rows)) });
  await part('row numbers', async () => {
    const error = await engine.joinIndices(side(), side(), { how: 'cross' }).catch((reason) => reason);
    assert.equal(error.code, 'ERR_NOT_SUPPORTED');
    return error.message;
  });
  await engine.dispose();
  await part('a buffer that Node.js refuses', async () => {
    const inner = new (native().Engine)({
      threads: 2,
      hostDevices: 1,
      gpus: [],
      memoryLimitBytes: 11 * GiB,
      deviceMemoryLimitBytes: 0,
    });
    const job = inner.createJob(Number.POSITIVE_INFINITY);
    const made = await inner.crossJoin(job, rows, rows, Number.POSITIVE_INFINITY, 'left', 0, Number.POSITIVE_INFINITY);
    for (const which of ['left', 'right'])
      assert.throws(() => inner.takeJoinValues(job, made, which), { code: 'ERR_BUFFER_TOO_LARGE' });
    // Its finalizer runs in a turn of its own.
    await setTimeout(100);
    made.release();
    assert.equal(inner.memory().usedBytes, 0);
    await inner.dispose();
    return 'is freed, once';
  });
} else {
  await engine.dispose();
}
