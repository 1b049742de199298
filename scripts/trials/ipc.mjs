// Damaged Arrow IPC bytes: node scripts/trials/ipc.mjs --seed N --rounds N [--first N]
//
// Every round damages a small file or stream of its own choice and gives it to sort(), joinCount() and the command line's reader.
// Each must end within a second of processor time, with a result or a WarpjoinError that is no ERR_INTERNAL, and without much
// memory. Some of the files and streams are compressed. They run in a child process, so that this one sees hangs and crashes; the
// time that it takes to start does not count. --first N --rounds 1 repeats round N.
import { fork } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as arrow from 'apache-arrow';
import pl from 'nodejs-polars';
import { ofRound, trialOptions } from './random.mjs';

const { seed, first, rounds, child: isChild } = trialOptions({ first: 0, rounds: 2000, child: 0 });

const slowest = 1; // seconds of processor time a round
const stuck = 60; // seconds of any time a round
const mostBytes = 256 << 20; // that a round may take

await (isChild ? runRounds() : supervise());

/** Runs the rounds in a child, and says in which it hung or died. */
async function supervise() {
  console.log(`ipc: seed ${seed}, rounds ${first} to ${first + rounds - 1}`);
  const args = ['--child', '1', '--seed', `${seed}`, '--first', `${first}`, '--rounds', `${rounds}`];
  const child = fork(fileURLToPath(import.meta.url), args, { execArgv: ['--max-old-space-size=256'] });
  let now = { round: first, what: 'the start' };
  // The first round has no limit of processor time before it is there: modules are loaded, an engine made, samples tried.
  let [began, spent] = [Date.now(), Number.POSITIVE_INFINITY];
  let summary;
  const fail = (what) => {
    console.error(
      `ipc: ${what} in round ${now.round} (${now.what}); again: node scripts/trials/ipc.mjs --seed ${seed} --first ${now.round} --rounds 1`,
    );
    process.exitCode = 1;
    child.kill('SIGKILL');
  };
  child.on('message', (message) => {
    if (message.summary) summary = message.summary;
    else if (message.failure) fail(message.failure);
    else now = message;
    [began, spent] = [Date.now(), processorSeconds(child.pid)];
  });
  const watch = setInterval(() => {
    const used = processorSeconds(child.pid) - spent;
    if (used > slowest) fail(`${used.toFixed(1)} s of processor time`);
    else if (Date.now() - began > stuck * 1000) fail(`${stuck} s without an end`);
  }, 100);
  const [code, signal] = await new Promise((resolve) => child.on('exit', (...how) => resolve(how)));
  clearInterval(watch);
  if (process.exitCode) return;
  if (code !== 0 || !summary) return fail(`the process ended with ${signal ?? `exit code ${code}`}`);
  console.log(`ipc: ${rounds} rounds, ${summary.read} read, ${summary.refused} refused`);
}

/** User and system time of a process so far. */
function processorSeconds(pid) {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/^.*\) /, '')
      .split(' ');
    return (Number(fields[11]) + Number(fields[12])) / 100;
  } catch {
    return 0; // it has ended
  }
}

async function runRounds() {
  const { createEngine, WarpjoinError } = await import('../../dist/index.js');
  const { readTable } = await import('../../dist/io/index.js');
  const samples = makeSamples();
  const folder = mkdtempSync(join(tmpdir(), 'warpjoin-ipc-trial-'));
  const path = join(folder, 'damaged.arrow');
  const engine = await createEngine({ device: 'cpu', threads: 1, memoryLimit: '256MiB' });
  const right = new arrow.Table({ k: arrow.vectorFromArray([1, 2, 3], new arrow.Int32()) });
  const counts = { read: 0, refused: 0 };
  const send = (message) => new Promise((resolve) => process.send(message, resolve));

  /** Whether the call gave a result; throws for an error that it may not give. */
  const works = async (what, call, isAllowed) => {
    try {
      await call();
      return true;
    } catch (error) {
      if (error instanceof WarpjoinError && isAllowed(error.code) && !error.message.includes('\n')) return false;
      throw new Error(`${what} threw ${error?.stack ?? error}`);
    }
  };
  const check = async (bytes, select) => {
    const api = (code) => code !== 'ERR_INTERNAL';
    const sorted = await works('sort', () => engine.sort(bytes, { by: 'k', select }), api);
    await works('joinCount', () => engine.joinCount(bytes, right, { on: 'k' }), api);
    if (bytes.byteLength > 0) writeFileSync(path, bytes);
    await works(
      'readTable',
      () => readTable(path),
      (code) => code === 'ERR_FILE',
    );
    counts[sorted ? 'read' : 'refused']++;
    return sorted;
  };

  try {
    for (const { name, bytes, select } of samples) {
      if (!(await check(bytes, select))) throw new Error(`${name} is refused without damage`);
    }
    await engine.sort(samples[0].bytes, { by: 'k', select: samples[0].select });
    for (let round = first; round < first + rounds; round++) {
      const random = ofRound(seed, round);
      const sample = samples[random(samples.length)];
      const { bytes, how } = damaged(sample, random);
      await send({ round, what: `${sample.name}: ${how}` });
      const before = process.memoryUsage.rss();
      await check(bytes, sample.select);
      const taken = process.memoryUsage.rss() - before;
      if (taken > mostBytes) throw new Error(`it took ${taken >> 20} MiB`);
    }
    await send({ summary: counts });
  } catch (error) {
    await send({ failure: error.message });
  } finally {
    rmSync(folder, { recursive: true });
  }
  await engine.dispose();
  process.disconnect();
}

/** Files and streams with all types that apache-arrow writes. `regions`: where their metadata lies. */
function makeSamples() {
  const rows = 12;
  const list = (make) => Array.from({ length: rows }, (_, row) => (row % 5 === 3 ? null : make(row)));
  const vector = (type, make) => arrow.vectorFromArray(list(make), type);
  const field = (name, type) => new arrow.Field(name, type, true, new Map([['unit', name]]));
  const k = vector(new arrow.Int32(), (row) => row);
  const flat = {
    k,
    i8: vector(new arrow.Int8(), (row) => row),
    u64: vector(new arrow.Uint64(), (row) => BigInt(row)),
    f16: vector(new arrow.Float16(), (row) => row),
    f64: vector(new arrow.Float64(), (row) => row / 3),
    bool: vector(new arrow.Bool(), (row) => row % 2 === 0),
    utf8: vector(new arrow.Utf8(), (row) => `text ${row}`),
    largeUtf8: vector(new arrow.LargeUtf8(), (row) => `large ${row}`),
    binary: vector(new arrow.Binary(), (row) => new Uint8Array(row)),
    largeBinary: vector(new arrow.LargeBinary(), (row) => new Uint8Array(row)),
    fixed: vector(new arrow.FixedSizeBinary(3), (row) => Uint8Array.of(row, row, row)),
    decimal: vector(new arrow.Decimal(2, 20), (row) => Uint32Array.of(row, 0, 0, 0)),
    day: vector(new arrow.DateDay(), (row) => new Date(row * 86400000)),
    time: vector(new arrow.TimeMillisecond(), (row) => row),
    timestamp: vector(new arrow.TimestampMicrosecond('UTC'), (row) => row * 1000),
    duration: vector(new arrow.DurationSecond(), (row) => BigInt(row)),
    interval: vector(new arrow.IntervalMonthDayNano(), (row) => Int32Array.of(row, row, 0, 0)),
  };
  const pair = new arrow.Struct([field('x', new arrow.Int32()), field('y', new arrow.Utf8())]);
  const entries = new arrow.Struct([new arrow.Field('key', new arrow.Utf8(), false), field('value', new arrow.Int32())]);
  const nested = {
    k,
    none: vector(new arrow.Null(), () => null),
    list: vector(new arrow.List(field('item', new arrow.List(field('item', new arrow.Int32())))), (row) => [[row], []]),
    struct: vector(pair, (row) => ({ x: row, y: `y${row}` })),
    fixedList: vector(new arrow.FixedSizeList(2, field('item', new arrow.Int32())), (row) => [row, row]),
    map: vector(new arrow.Map_(new arrow.Field('entries', entries, false)), (row) => new Map([['a', row]])),
  };
  const union = (mode) => {
    const type = new arrow.Union(mode, [0, 1], [field('x', new arrow.Int32()), field('y', new arrow.Utf8())]);
    const children = [k, vector(new arrow.Utf8(), (row) => `y${row}`)].map(({ data }) => data[0]);
    const typeIds = Int8Array.from({ length: rows }, (_, row) => row % 2);
    return new arrow.Vector([
      arrow.makeData({ type, length: rows, typeIds, valueOffsets: Int32Array.from(typeIds.keys()), children }),
    ]);
  };
  const unsliced = {
    k,
    view: vector(new arrow.Utf8View(), (row) => 'a view that is too long to lie in place'.repeat(row % 3)),
    sparse: union(arrow.UnionMode.Sparse),
    dense: union(arrow.UnionMode.Dense),
  };
  const dictionary = {
    k,
    first: vector(new arrow.Dictionary(new arrow.Utf8(), new arrow.Int32(), 7), (row) => `v${row % 3}`),
    second: vector(new arrow.Dictionary(pair, new arrow.Int8(), 8), (row) => ({ x: row % 2, y: 'same' })),
  };
  const tables = { flat, nested, unsliced, dictionary };
  const samples = [];
  const add = (name, table, select) => {
    const bytes = {
      file: arrow.tableToIPC(table, 'file'),
      stream: arrow.tableToIPC(table, 'stream'),
      legacy: arrow.RecordBatchStreamWriter.writeAll(table, { writeLegacyIpcFormat: true }).toUint8Array(true),
    };
    for (const kind of ['file', 'stream', 'legacy'])
      samples.push({
        name: `${name} ${kind}`,
        bytes: bytes[kind],
        select,
        regions: metadataOf(bytes[kind], kind === 'legacy' ? 4 : 8),
      });
  };
  for (const [name, columns] of Object.entries(tables)) {
    const { schema, batches } = new arrow.Table(columns);
    const described = new arrow.Schema(schema.fields, new Map([['who', 'the trial']]));
    const whole = new arrow.Table(
      described,
      batches.map(({ data }) => new arrow.RecordBatch(described, data)),
    );
    const select = name === 'flat' ? Object.keys(columns) : ['k'];
    add(name, whole, select);
    // apache-arrow writes slices of views and unions wrong.
    if (name !== 'unsliced') add(`chunked ${name}`, whole.slice(5).concat(whole.slice(0, 2), whole.slice(2, 9)), select);
    add(`empty ${name}`, whole.slice(0, 0), select);
  }
  for (const compression of ['lz4', 'zstd']) {
    const frame = compressible();
    const made = { file: frame.writeIPC({ compression }), stream: frame.writeIPCStream({ compression }) };
    for (const [kind, bytes] of Object.entries(made)) {
      const regions = metadataOf(bytes, 8);
      // Half of the damage is to what is compressed.
      const bodies = regions.filter(({ end, next }) => next > end).map(({ end, next }) => ({ start: end, end: next, next }));
      samples.push({ name: `${compression} ${kind}`, bytes, select: frame.columns, regions: [...regions, ...bodies, ...bodies] });
    }
  }
  return samples;
}

/** Columns whose buffers are worth compressing: runs, noise, text of few and of many words. */
function compressible() {
  const rows = 400;
  const column = (name, type, make) =>
    pl.Series(
      name,
      Array.from({ length: rows }, (_, row) => (row % 9 === 4 ? null : make(row))),
      type,
    );
  const noise = (row) => Math.imul(row + 1, 2654435761) >>> 0;
  return pl.DataFrame([
    column('k', pl.Int32, (row) => row % 50),
    column('noise', pl.Float64, (row) => noise(row) / 3),
    column('zeros', pl.Int64, () => 0n),
    column('text', pl.Utf8, (row) => `text ${noise(row) % 100} with more than twelve bytes`),
    column('category', pl.Utf8, (row) => `c${noise(row) % 7}`).cast(pl.Categorical),
  ]);
}

/** Where the metadata of valid bytes lies: of each message with its prefix, and the footer. */
function metadataOf(bytes, prefix) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const isFile = Buffer.from(bytes.subarray(0, 6)).toString() === 'ARROW1';
  const regions = [];
  for (let at = isFile ? 8 : 0; at < bytes.length; ) {
    const length = view.getInt32(at + prefix - 4, true);
    if (length === 0) break;
    const metadata = bytes.subarray(at + prefix, at + prefix + length);
    const body = Number(arrow.Message.decode(metadata).bodyLength);
    const end = at + prefix + length;
    regions.push({ start: at, end, next: end + body });
    at = end + body;
  }
  if (isFile) {
    const length = view.getInt32(bytes.length - 10, true);
    regions.push({ start: bytes.length - 10 - length, end: bytes.length, next: bytes.length });
  }
  return regions;
}

/** One to three kinds of damage, most of it to metadata. */
function damaged({ bytes: whole, regions }, random) {
  let bytes = Uint8Array.from(whole);
  const done = [];
  /** A place for a value of `size` bytes, aligned to its size, or -1. */
  const place = (size) => {
    const { start, end } = random(8) === 0 ? { start: 0, end: bytes.length } : regions[random(regions.length)];
    const at = start + random(Math.max(1, end - start));
    const aligned = at - (at % size);
    return aligned + size <= bytes.length ? aligned : -1;
  };
  const odd = (before) => {
    const values = [
      0,
      -1,
      1,
      2 ** 31 - 1,
      -(2 ** 31),
      32 * 2 ** 30,
      before + 1,
      before - 1,
      before * 2,
      before + 8,
      random(256),
      random(2 ** 32),
    ];
    return values[random(values.length)];
  };
  const replaceInteger = (size) => {
    const at = place(size);
    if (at < 0) return 'nothing';
    const view = new DataView(bytes.buffer);
    const before =
      size === 8 ? Number(view.getBigInt64(at, true)) : size === 4 ? view.getInt32(at, true) : view.getUint16(at, true);
    const value = odd(before);
    if (size === 8) view.setBigInt64(at, BigInt(value), true);
    else if (size === 4) view.setInt32(at, value, true);
    else view.setUint16(at, value, true);
    return `${size} bytes at ${at} from ${before} to ${value}`;
  };
  const kinds = [
    () => {
      const at = place(1);
      if (at < 0) return 'nothing';
      bytes[at] ^= 1 << random(8);
      return `a bit at ${at}`;
    },
    () => {
      const at = place(1);
      if (at >= 0) bytes[at] = random(256);
      return `a byte at ${at}`;
    },
    () => replaceInteger(2),
    () => replaceInteger(4),
    () => replaceInteger(4),
    () => replaceInteger(8),
    () => {
      const size = [2, 4, 8][random(3)];
      const [one, other] = [place(size), place(size)];
      if (one < 0 || other < 0) return 'nothing';
      const kept = bytes.slice(one, one + size);
      bytes.copyWithin(one, other, other + size);
      bytes.set(kept, other);
      return `${size} bytes at ${one} and ${other} exchanged`;
    },
    () => {
      bytes = bytes.slice(0, random(bytes.length));
      return `cut off at ${bytes.length}`;
    },
    () => {
      const [at, count] = [random(bytes.length + 1), 1 + random(16)];
      const added = Uint8Array.from({ length: count }, () => (random(2) ? 0 : random(256)));
      bytes = Uint8Array.from([...bytes.subarray(0, at), ...added, ...bytes.subarray(at)]);
      return `${count} bytes more at ${at}`;
    },
    () => {
      const [at, count] = [random(bytes.length + 1), 1 + random(16)];
      bytes = Uint8Array.from([...bytes.subarray(0, at), ...bytes.subarray(at + count)]);
      return `${count} bytes less at ${at}`;
    },
    () => {
      const [from, to] = [regions[random(regions.length)], regions[random(regions.length)]];
      const part = bytes.slice(from.start, from.next);
      const rest = random(2) ? bytes.subarray(to.start) : bytes.subarray(to.next);
      bytes = Uint8Array.from([...bytes.subarray(0, to.start), ...part, ...rest]);
      return `the message at ${from.start} again at ${to.start}`;
    },
  ];
  for (let times = Math.max(1, random(5) - 1); times > 0; times--) done.push(kinds[random(kinds.length)]());
  return { bytes, how: done.join(', ') };
}
