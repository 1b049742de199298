/** Temporary files whose reads and writes fail or do less than was asked for, and processes that are killed while they have some. */
import { spawn } from 'node:child_process';
import fs, { mkdtempSync, readdirSync, readlinkSync, unlinkSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as arrow from 'apache-arrow';
import { afterAll, afterEach, describe, expect, test, vi } from 'vitest';
import { collectGarbage } from '../../lib/operators/reclaim.js';
import { describeHost, inspectedEngine } from '../support/engines.js';
import { later, random } from '../support/tables.js';

const folder = mkdtempSync(join(tmpdir(), 'warpjoin-test-'));

function keyed(length: number, seed: number, row: string): arrow.RecordBatch[] {
  const draw = random(seed);
  const keys = Int32Array.from({ length }, () => draw(length));
  const texts = Array.from(keys, (key) => (key % 9 ? `text ${key}` : null));
  const columns = { k: arrow.makeVector(keys), t: arrow.vectorFromArray(texts, new arrow.Utf8()) };
  const table = new arrow.Table({ ...columns, [row]: arrow.makeVector(Int32Array.from({ length }, (_, index) => index)) });
  return Array.from(
    { length: Math.ceil(length / 1000) },
    (_, part) => table.slice(part * 1000, (part + 1) * 1000).batches,
  ).flat();
}
const [left, right] = [keyed(30_000, 1, 'l'), keyed(30_000, 2, 'r')];

type Engine = ReturnType<typeof inspectedEngine>['engine'];
const calls: [string, (engine: Engine) => AsyncIterable<arrow.RecordBatch>][] = [
  ['sortBatches', (engine) => engine.sortBatches(later(left), { by: ['t', 'k'] })],
  [
    'sort, mapped',
    async function* (engine) {
      yield* (await engine.sort(later(left), { by: ['t', 'k'], result: 'mapped' })).batches;
    },
  ],
  ['joinBatches', (engine) => engine.joinBatches(later(left), later(right), { on: 'k', how: 'full', select: ['l', 'r'] })],
];
async function sumOf(batches: AsyncIterable<arrow.RecordBatch>): Promise<number> {
  let sum = 0;
  for await (const batch of batches) for (const row of batch.getChild('l')!) sum += 1 + (row ?? 0);
  return sum;
}
const engineOf = (memoryLimit: string) => inspectedEngine(1, { memoryLimit, threads: 2, tempDirectory: folder });

/** Those in the folder that a process has open. */
function openFiles(process: number | 'self'): string[] {
  const target = (fd: string): string => {
    try {
      return readlinkSync(`/proc/${process}/fd/${fd}`);
    } catch {
      return ''; // it was closed meanwhile
    }
  };
  return readdirSync(`/proc/${process}/fd`)
    .map(target)
    .filter((path) => path.startsWith(folder));
}

/** The class of open files, which has no name outside of Node.js. */
async function fileClass(): Promise<FileHandle> {
  const path = join(folder, 'probe');
  const file = await open(path, 'w');
  await file.close();
  unlinkSync(path);
  return Object.getPrototypeOf(file);
}
const files = await fileClass();
const kinds = ['writev', 'readv'] as const;
afterEach(() => vi.restoreAllMocks());

/** The calls of either kind that are made from now on go through `each`, with their number and what they do. */
function intercept(
  kind: (typeof kinds)[number],
  each: (
    call: number,
    parts: readonly NodeJS.ArrayBufferView[],
    go: (parts: readonly NodeJS.ArrayBufferView[]) => unknown,
  ) => unknown,
): () => number {
  let made = 0;
  const whole = files[kind] as FileHandle['writev'];
  vi.spyOn(files, kind).mockImplementation(function (this: FileHandle, parts: readonly NodeJS.ArrayBufferView[], at?: number) {
    return each(++made, parts, (some) => whole.call(this, some, at)) as never;
  } as never);
  return () => made;
}

describeHost('temporary files', 'their transfer buffers take more than these limits', () => {
  describe.each(calls)('of %s', (_, call) => {
    test('reads and writes may do a part of what was asked for', async () => {
      const large = engineOf('1GiB');
      const expected = await sumOf(call(large.engine));
      await large.engine.dispose();
      const { engine } = engineOf('1500KiB');
      const made = kinds.map((kind) =>
        intercept(kind, (call, parts, go) => {
          const first = new Uint8Array(parts[0]!.buffer, parts[0]!.byteOffset, parts[0]!.byteLength);
          return go(call % 3 ? parts : [first.subarray(0, Math.max(1, first.byteLength >> 1))]);
        }),
      );
      expect(await sumOf(call(engine))).toBe(expected);
      for (const count of made) expect(count()).toBeGreaterThan(5);
      await engine.dispose();
    });

    test.each(kinds)('the n-th %s that fails ends the call, and nothing is left', async (kind) => {
      const { engine, inner } = engineOf('1500KiB');
      const fails = async (n: number) => {
        const full = Object.assign(new Error('no space left on device'), { code: 'ENOSPC' });
        const made = intercept(kind, (call, parts, go) => (call === n ? Promise.reject(full) : go(parts)));
        const found = await sumOf(call(engine)).catch((error: unknown) => error);
        if (made() >= n) {
          expect(found).toMatchObject({ code: 'ERR_SPILL', message: expect.stringContaining(folder) });
          expect(found).toMatchObject({ message: expect.stringContaining(kind === 'writev' ? 'cannot write' : 'cannot read') });
        }
        vi.restoreAllMocks();
        return made() >= n;
      };
      let n = 1;
      while (await fails(n)) n *= 2;
      expect(n).toBeGreaterThan(5);
      expect(openFiles('self')).toEqual([]);
      await expect.poll(() => collectGarbage(() => inner.memory().usedBytes)).toBe(0);
      await engine.dispose();
    });
  });

  test('file systems may have no files without a name', async () => {
    const { open } = fs.promises;
    let named = 0;
    fs.promises.open = async (path, flags, mode) => {
      if (typeof flags === 'number') throw Object.assign(new Error('not here'), { code: 'EOPNOTSUPP' });
      named++;
      return open(path, flags, mode);
    };
    syncBuiltinESMExports();
    try {
      const { engine } = engineOf('1500KiB');
      const batches = engine.sortBatches(later(left), { by: 'k' });
      for await (const _ of batches) expect(readdirSync(folder)).toEqual([]);
      expect(batches.stats.runs).toBeGreaterThan(1);
      expect(named).toBe(batches.stats.runs);
      await engine.dispose();
    } finally {
      fs.promises.open = open;
      syncBuiltinESMExports();
    }
  });
});

test('a process that is killed leaves nothing', async () => {
  const library = new URL('../../dist/index.js', import.meta.url).href;
  const program = `
    import { createEngine, fromColumns } from ${JSON.stringify(library)};
    const engine = await createEngine({ device: 'cpu', memoryLimit: '4MiB', tempDirectory: ${JSON.stringify(folder)} });
    async function* endless() {
      for (let seed = 1; ; seed++) {
        const k = Int32Array.from({ length: 20_000 }, (_, row) => Math.imul(row * seed, 0x9e3779b1));
        yield* fromColumns({ k, v: k.slice() }).batches;
      }
    }
    const join = process.argv[1] === 'joinBatches';
    const batches = join ? engine.joinBatches(endless(), endless(), { on: 'k' }) : engine.sortBatches(endless(), { by: 'k' });
    const wait = setInterval(() => batches.stats.spilledBytes > 0 && process.stdout.write('.'), 10);
    for await (const _ of batches);`;
  for (const name of ['sortBatches', 'joinBatches']) {
    const child = spawn(process.execPath, ['--input-type=module', '-e', program, name], { stdio: ['ignore', 'pipe', 'inherit'] });
    await new Promise((resolve) => child.stdout.once('data', resolve));
    expect(openFiles(child.pid!).length).toBeGreaterThan(0);
    child.kill('SIGKILL');
    await new Promise((resolve) => child.once('exit', resolve));
    expect(readdirSync(folder)).toEqual([]);
  }
});

afterAll(() => expect(readdirSync(folder)).toEqual([]));
