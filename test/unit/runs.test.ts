import { expect, test } from 'vitest';
import { type BatchesCore, noStats } from '../../lib/operators/batch-stream.js';
import { RunStack } from '../../lib/operators/runs.js';

test.each([
  [2 ** 25, 2, 2 ** 16], // a 256th of the windows
  [2 ** 25, 16, 2 ** 13],
  [2 ** 25, 60, 2 ** 13], // wide rows: 1,024 values of 8 bytes
  [2 ** 25, 1000, 2 ** 19 / 1000], // as long as 32 runs have room
  [2 ** 21, 60, 2 ** 10],
  [2 ** 10, 1, 2 ** 12], // the least unit
  [2 ** 34, 2, 2 ** 21],
])('windows of %d bytes, %d columns: buffers of %d bytes', (windowBytes, columns, bytes) => {
  const runs = new RunStack({} as BatchesCore, windowBytes, noStats());
  expect(runs.bufferBytes(columns)).toBe(Math.max(2 ** 10, Math.floor(bytes)));
});
