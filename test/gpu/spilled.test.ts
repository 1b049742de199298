/** Joins that one GPU has too little memory for: what moves over its link. */
import { tableFromArrays } from 'apache-arrow';
import { expect, test } from 'vitest';
import { createEngine } from '../../lib/index.js';
import { random } from '../support/tables.js';

test('each tuple crosses the link once, spilled ones three times, and each row once', async () => {
  const draw = random(3);
  const keys = BigInt64Array.from({ length: 16_000_000 }, (_, row) => BigInt(row) * 5n);
  const probe = BigInt64Array.from({ length: 16_000_000 }, () => BigInt(draw(80_000_000)));
  const [left, right] = [keys, probe].map((side) => ({ keys: side, values: side.map((key) => key * 3n) })) as [
    { keys: BigInt64Array; values: BigInt64Array },
    { keys: BigInt64Array; values: BigInt64Array },
  ];
  for (const deviceMemoryLimit of ['8GiB', '256MiB']) {
    await using engine = await createEngine({ devices: [0], memoryLimit: '8GiB', deviceMemoryLimit });
    const pairs = await engine.joinKeys(left, right, { algorithm: 'triton' });
    const { spilledRows, devices } = pairs.stats;
    expect(spilledRows > 0).toBe(deviceMemoryLimit === '256MiB');
    const tuples = keys.length + probe.length + spilledRows;
    const rowBytes = pairs.keys.BYTES_PER_ELEMENT + pairs.r.BYTES_PER_ELEMENT + pairs.s.BYTES_PER_ELEMENT;
    expect(devices[0]!.bytesToDevice).toBe(16 * tuples);
    expect(devices[0]!.bytesToHost).toBe(16 * spilledRows + rowBytes * pairs.keys.length);
    const kept = engine.joinKeys(left, right, { algorithm: 'radix-hash' });
    if (spilledRows === 0) expect((await kept).stats.algorithm).toBe('radix-hash');
    else
      await expect(kept).rejects.toThrow(/^A radix-hash join takes .* algorithm "triton" spills what the devices do not hold\./);
  }
});

test('explain says what will be moved: within 2 % of it, of four times the limit', async () => {
  const rows = 32_000_000;
  const side = (name: string, keyOf: (row: number) => number) => {
    const keys = BigInt64Array.from({ length: rows }, (_, row) => BigInt(keyOf(row)));
    return tableFromArrays({ k: keys, [name]: keys.map((key) => key * 3n) });
  };
  // Each key is there once on both sides, in another order.
  const [left, right] = [side('a', (row) => row), side('b', (row) => (row * 7919) % rows)];
  await using engine = await createEngine({ devices: [0], memoryLimit: '16GiB', deviceMemoryLimit: '256MiB' });
  const text = await engine.explain('join', left, right, { on: 'k', algorithm: 'triton', analyze: true });
  const bytes = (line: RegExp) => {
    const found = line.exec(text);
    if (!found) throw new Error(`Nothing like ${line} in\n${text}`);
    const size = (value: string, unit: string) => Number(value) * (unit === 'GiB' ? 2 ** 30 : 2 ** 20);
    return [size(found[1]!, found[2]!), size(found[3]!, found[4]!)] as const;
  };
  const [there, home] = bytes(/^ {2}moves +([\d.]+) (\wiB) to the devices, ([\d.]+) (\wiB) home$/m);
  const [went, came] = bytes(
    /^moved ([\d.]+) (\wiB) to the devices, ([\d.]+) (\wiB) home: at least [\d.]+ ms over the links; its steps took [\d.]+ times that$/m,
  );
  expect(Math.abs(went / there - 1)).toBeLessThan(0.02);
  expect(Math.abs(came / home - 1)).toBeLessThan(0.02);
  expect(text).toMatch(/, [\d,]+ tuples spilled\n/);
});
