/** What runs at the same time on GPUs, as traces show it. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { createEngine } from '../../lib/index.js';
import { random } from '../support/tables.js';
import { overlap, readTrace, spansOf } from '../support/traces.js';

const folder = mkdtempSync(join(tmpdir(), 'warpjoin-trace-'));
afterAll(() => rmSync(folder, { recursive: true }));

test.each(['8GiB', '256MiB'])('waves are matched while others arrive and rows go home, with %s', async (deviceMemoryLimit) => {
  const draw = random(3);
  const keys = BigInt64Array.from({ length: 16_000_000 }, (_, row) => BigInt(row) * 5n);
  const probe = BigInt64Array.from({ length: 48_000_000 }, () => BigInt(draw(80_000_000)));
  const trace = join(folder, `${deviceMemoryLimit}.json`);
  await using engine = await createEngine({ devices: [0], memoryLimit: '16GiB', deviceMemoryLimit });
  const pairs = await engine.joinKeys({ keys, values: keys }, { keys: probe, values: probe }, { algorithm: 'triton', trace });
  const read = readTrace(trace);
  const device = engine.devices()[0]!;
  const of = (track: string) => spansOf(read, new RegExp(`^0 .*/${track}, `));
  const [there, home, kernels] = [of('to device'), of('to host'), of('kernels')];
  const matches = kernels.filter(({ name }) => name === 'match');
  expect(matches.length).toBeGreaterThan(2);
  // The bytes are those that the devices count.
  const bytes = (spans: readonly { bytes: number }[]) => spans.reduce((sum, span) => sum + span.bytes, 0);
  expect([device.kind, bytes(there), bytes(home)]).toEqual([
    'gpu',
    pairs.stats.devices[0]!.bytesToDevice,
    pairs.stats.devices[0]!.bytesToHost,
  ]);
  for (const [one, other] of [
    [matches, there],
    [matches, home],
    [there, home],
  ] as const) {
    expect(overlap(one, other)).toBeGreaterThan(0);
  }
  // Threads copy to the ring and from it meanwhile.
  const ring = spansOf(read, /^host\/thread/).filter(({ name }) => name.endsWith(' the ring'));
  expect(overlap(ring, there)).toBeGreaterThan(0);
});
