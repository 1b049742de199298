// Calls whose inputs are written to while they run: by a worker thread into SharedArrayBuffers, and by this thread between its
// ticks into ArrayBuffers. A call may give anything of the right shape, or say what it found; it may not read or write beyond a
// buffer (run it with an addon built with ASan), give row numbers that there are not, take for ever, or harm the calls after it.
// node scripts/trials/changing-inputs.mjs [--seed N] [--rounds N]
import { Worker } from 'node:worker_threads';
import {
  Binary,
  Bool,
  DataType,
  Decimal,
  DenseUnion,
  Dictionary,
  Field,
  FixedSizeBinary,
  FixedSizeList,
  Float64,
  Int8,
  Int16,
  Int32,
  Int64,
  LargeList,
  LargeUtf8,
  List,
  Map_,
  Schema,
  SparseUnion,
  Struct,
  Table,
  TimestampMillisecond,
  Type,
  Uint32,
  Uint64,
  Utf8,
  Utf8View,
} from 'apache-arrow';
import { createEngine } from '../../dist/index.js';
import { writeTable } from '../../dist/io/index.js';
import { random as numbers, ofRound, trialOptions } from './random.mjs';

const { seed, rounds } = trialOptions({ rounds: 100 });
const LONGEST_CALL_MS = 120_000;
const ACCEPTED = new Set(['ERR_INVALID_TABLE', 'ERR_MEMORY_LIMIT', 'ERR_NOT_SUPPORTED', 'ERR_DEVICE', 'ERR_FILE']);

/** Writes once, somewhere, into one of the arrays: whole stretches, or words of any size. */
function scribble(arrays, random) {
  const bytes = arrays[random(arrays.length)];
  if (bytes.length === 0) return;
  const begin = random(2) ? 0 : random(bytes.length);
  const end = Math.min(bytes.length, begin + (random(2) ? bytes.length : random(5000)));
  if (random(2)) {
    bytes.fill([0, 255, random(256)][random(3)], begin, end);
  } else {
    const mask = random(2) ? 255 : 3;
    for (let i = begin; i < Math.min(end, begin + 20000); i++) bytes[i] = random(256) & mask;
  }
}

// The worker: writes to the arrays of each message until `busy` is 0.
const worker = new Worker(
  `const { parentPort } = require('node:worker_threads');
  ${numbers}
  ${scribble}
  parentPort.on('message', ({ buffers, busy, seed }) => {
    const below = ${numbers.name}(seed).below;
    const flag = new Int32Array(busy);
    const arrays = buffers.map((buffer) => new Uint8Array(buffer));
    while (Atomics.load(flag, 0)) scribble(arrays, below);
    Atomics.store(flag, 1, 1);
    Atomics.notify(flag, 1);
  });`,
  { eval: true },
);

const FIXED = [
  [() => new Int32(), Int32Array],
  [() => new Uint32(), Uint32Array],
  [() => new Int64(), BigInt64Array],
  [() => new Uint64(), BigUint64Array],
  [() => new Float64(), Float64Array],
];

/** Draws inputs over memory of one kind. */
class Inputs {
  /** @param {typeof SharedArrayBuffer | typeof ArrayBuffer} Memory */
  constructor(Memory, random) {
    this.Memory = Memory;
    this.random = random;
    this.buffers = [];
  }

  /** A typed array, alone in its buffer. */
  array(Type, length, at = () => 0) {
    const buffer = new this.Memory(length * Type.BYTES_PER_ELEMENT);
    this.buffers.push(buffer);
    const array = new Type(buffer);
    const big = Type === BigInt64Array || Type === BigUint64Array;
    for (let i = 0; i < length; i++) array[i] = big ? BigInt(at(i)) : at(i);
    return array;
  }

  key(rows) {
    const shape = this.random(3);
    return shape === 0
      ? (i) => i
      : shape === 1
        ? () => this.random(rows + 1)
        : () => this.random(2 ** 31) * (this.random(2) || 1);
  }

  /** Sizes of texts or lists, added up. */
  offsets(Offsets, rows, longest) {
    const offsets = [0];
    for (let i = 0; i < rows; i++) offsets.push(offsets[i] + this.random(longest + 1));
    return { end: offsets[rows], valueOffsets: this.array(Offsets, rows + 1, (i) => offsets[i]) };
  }

  bytes(length, least = 0, below = 256) {
    return this.array(Uint8Array, length, () => least + this.random(below - least));
  }

  data(type, rows) {
    const nullBitmap = this.random(3) ? undefined : this.bytes((rows + 7) >> 3);
    const data = { length: rows, offset: 0, _nullCount: nullBitmap ? -1 : 0, nullBitmap, children: [] };
    const child = (index, length) => this.data(type.children[index].type, length);
    const children = (length) => type.children.map((_, index) => child(index, length));
    const fixed = FIXED.find(([make]) => make().toString() === type.toString());
    if (fixed) return { ...data, values: this.array(fixed[1], rows, this.key(rows)) };
    switch (type.typeId) {
      case Type.Bool:
        return { ...data, values: this.bytes((rows + 7) >> 3) };
      case Type.Dictionary: {
        const size = 1 + this.random(100);
        const dictionary = { data: [this.data(type.dictionary, size)] };
        return { ...data, values: this.array(type.indices.ArrayType, rows, () => this.random(size)), dictionary };
      }
      case Type.Timestamp:
        return { ...data, values: this.array(BigInt64Array, rows, this.key(rows)) };
      case Type.Decimal:
        return { ...data, values: this.array(Uint32Array, (rows * type.bitWidth) / 32, () => this.random(3)) };
      case Type.FixedSizeBinary:
        return { ...data, values: this.bytes(rows * type.byteWidth, 0, 3) };
      case Type.Utf8View: {
        const text = this.bytes(1000, 97, 100);
        const views = this.array(Int32Array, 4 * rows);
        for (let i = 0; i < rows; i++) {
          views[4 * i] = this.random(40);
          if (views[4 * i] > 12) views[4 * i + 3] = this.random(960);
        }
        return { ...data, values: new Uint8Array(views.buffer), variadicBuffers: [text] };
      }
      case Type.List:
      case Type.Map: {
        const { end, valueOffsets } = this.offsets(Int32Array, rows, 3);
        return { ...data, valueOffsets, children: children(end) };
      }
      case Type.LargeList: {
        const { end, valueOffsets } = this.offsets(BigInt64Array, rows, 3);
        return { ...data, valueOffsets, children: children(end) };
      }
      case Type.FixedSizeList:
        return { ...data, children: children(rows * type.listSize) };
      case Type.Struct:
        return { ...data, children: children(rows) };
      case Type.Union: {
        const typeIds = this.array(Int8Array, rows, () => type.typeIds[this.random(type.typeIds.length)]);
        const union = { ...data, _nullCount: 0, nullBitmap: undefined, typeIds, children: children(rows) };
        if (DataType.isSparseUnion(type)) return union;
        return { ...union, valueOffsets: this.array(Int32Array, rows, (i) => i) };
      }
      default: {
        const Offsets = type instanceof LargeUtf8 ? BigInt64Array : Int32Array;
        const { end, valueOffsets } = this.offsets(Offsets, rows, this.random(2) ? 6 : 30);
        return { ...data, valueOffsets, values: this.bytes(end, 97, 100) };
      }
    }
  }

  of(...choices) {
    return choices[this.random(choices.length)]();
  }

  /** A type of keys. */
  type() {
    const fixed = () => FIXED[this.random(FIXED.length)][0]();
    const others = [Bool, Utf8, LargeUtf8, Binary, Utf8View, TimestampMillisecond].map((Type) => () => new Type());
    const wide = [() => new Decimal(2, 38, 128), () => new Decimal(0, 18, 64), () => new FixedSizeBinary(5)];
    const coded = () =>
      new Dictionary(
        this.of(() => new Utf8(), fixed),
        this.of(
          () => new Int8(),
          () => new Int32(),
        ),
        this.id++,
      );
    return this.of(fixed, fixed, fixed, fixed, ...others, ...wide, coded, coded);
  }
  id = 0;

  /** A type of payload: what may be nested goes so many levels down. */
  payloadType(levels) {
    if (levels === 0 || this.random(2)) return this.type();
    const field = (name) => new Field(name, this.payloadType(levels - 1), true);
    const entries = () => new Field('entries', new Struct([new Field('k', new Utf8(), false), field('v')]), false);
    return this.of(
      () => new List(field('item')),
      () => new LargeList(field('item')),
      () => new FixedSizeList(1 + this.random(3), field('item')),
      () => new Struct([field('a'), field('b')]),
      () => new Map_(entries()),
      () => new SparseUnion([3, 7], [field('a'), field('b')]),
      () => new DenseUnion([5, 0], [field('a'), field('b')]),
      () => new Dictionary(this.payloadType(levels - 1), new Int16(), this.id++),
    );
  }

  /** An Arrow table as the engine reads it: key columns of these types, and others. */
  table(keyTypes, rows, mostOthers = 3) {
    const others = Array.from({ length: this.random(mostOthers + 1) }, () => this.payloadType(rows > 50_000 ? 0 : 2));
    const types = [...keyTypes, ...others];
    const lengths = [];
    for (let left = rows; left > 0; ) {
      lengths.push(this.random(2) ? left : 1 + this.random(left));
      left -= lengths.at(-1);
    }
    const batches = lengths.map((length) => ({ data: { length, children: types.map((type) => this.data(type, length)) } }));
    const fields = types.map((type, i) => ({ name: i < keyTypes.length ? `k${i}` : `c${i}`, type, nullable: true }));
    return { schema: { fields }, batches, numRows: rows };
  }
}

/** Whether a result has the shape that its types say: no offset or type id points to where nothing is. */
function checkShape({ type, length, offset, valueOffsets, values, typeIds, children }) {
  const fail = (what) => {
    throw new Error(`A result of ${type} has ${what}`);
  };
  const within = children ?? [];
  if (valueOffsets && !DataType.isUnion(type)) {
    const size = BigInt(within[0]?.length ?? values.byteLength);
    for (let i = offset; i < offset + length; i++) if (valueOffsets[i] > valueOffsets[i + 1]) fail('offsets that fall');
    if (length > 0 && (valueOffsets[offset] < 0 || BigInt(valueOffsets[offset + length]) > size))
      fail('offsets that are outside');
  }
  if (DataType.isUnion(type)) {
    for (let i = offset; i < offset + length; i++) {
      const index = type.typeIds.indexOf(typeIds[i]);
      if (index < 0) fail('a type id that its type lacks');
      const at = DataType.isDenseUnion(type) ? valueOffsets[i] : i;
      if (at < 0 || at >= within[index].length) fail('an offset that is outside');
    }
  }
  if (DataType.isStruct(type) && within.some((child) => child.length < length)) fail('a child that is too short');
  if (DataType.isFixedSizeList(type) && within[0].length < (offset + length) * type.listSize) fail('a child that is too short');
  // An index is a value as any other, and a dictionary's values may be the caller's own.
  if (!DataType.isDictionary(type)) within.forEach(checkShape);
}

const KINDS = ['inner', 'left', 'right', 'full', 'semi', 'anti'];

/** One call on these inputs: its name and a function that makes it. */
function drawCall(engine, inputs, random) {
  const rows = () => [1, 60, 3000, 30_000, 120_000][random(5)];
  const algorithm = () => [undefined, 'radix-hash', 'sort-merge'][random(3)];
  const some = (object) => Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined));
  const checkRows = (numbers, below) => {
    const missing = numbers instanceof Uint32Array ? 0xffffffff : 2n ** 64n - 1n;
    for (const row of numbers ?? []) if (row >= below && row !== missing) throw new Error(`There is no row ${row} of ${below}`);
  };
  const of = random(8);
  if (of === 0) {
    const length = rows();
    const [Keys, Values] = [FIXED[random(5)][1], FIXED[random(5)][1]];
    const [keys, values] = [inputs.array(Keys, length, inputs.key(length)), inputs.array(Values, length, (i) => i)];
    return ['sortPairs', () => engine.sortPairs(keys, values, some({ descending: random(2) === 1 }))];
  }
  if (of === 1) {
    const Keys = FIXED[random(4)][1];
    const side = () => {
      const length = rows();
      return { keys: inputs.array(Keys, length, inputs.key(length)), values: inputs.array(Int32Array, length, (i) => i) };
    };
    const [r, s] = [side(), side()];
    return ['joinKeys', () => engine.joinKeys(r, s, some({ algorithm: algorithm(), maxOutputRows: 2e6 }))];
  }
  const keyTypes = Array.from({ length: 1 + random(2) * random(3) }, () => inputs.type());
  const whole = (result) => {
    if (result instanceof Table) for (const { data } of result.batches) data.children.forEach(checkShape);
  };
  if (of === 2 || of === 3) {
    const table = inputs.table(keyTypes, rows());
    const names = keyTypes.map((_, index) => `k${index}`);
    const by = names.slice(0, 1 + random(names.length)).map((column) => ({ column, descending: random(2) === 1 }));
    const limit = [undefined, undefined, 1, 100, 5000][random(5)];
    const options = some({ by, algorithm: [undefined, 'merge', 'radix', 'sample'][random(4)], limit, offset: random(2) * 7 });
    const what = random(8);
    if (what === 0) {
      const indices = async () => checkRows((await engine.sortIndices(table, options)).rows, table.numRows);
      return [`sortIndices by ${by.length}`, indices];
    }
    if (what === 1) return [`isSorted by ${by.length}`, () => engine.isSorted(table, { by })];
    if (what === 2) {
      const unsorted = (error) => {
        if (error.code !== 'ERR_OPTION') throw error;
      };
      const search = async () => checkRows(await engine.searchSorted(table, table, { by }).catch(unsorted), table.numRows + 1);
      return [`searchSorted by ${by.length}`, search];
    }
    if (of === 2) return [`sort by ${by.length}`, async () => whole(await engine.sort(table, options))];
    return [`load, sort by ${by.length}`, async () => whole(await engine.sort(await engine.load(table), options))];
  }
  if (of === 7) {
    // As a file: what the addon writes, which the types of keys are.
    const { batches, numRows } = inputs.table(keyTypes, rows(), 0);
    const schema = new Schema(keyTypes.map((type, i) => new Field(`k${i}`, type, true)));
    const written = { schema, batches, numRows };
    return ['write Parquet', () => writeTable(written, '/dev/null', { format: 'parquet' })];
  }
  const [left, right] = [inputs.table(keyTypes, rows()), inputs.table(keyTypes, rows())];
  const how = KINDS[random(6)];
  const on = keyTypes.map((_, index) => `k${index}`);
  const maintainOrder = [undefined, undefined, 'left', 'right'][random(4)];
  const limit = [undefined, undefined, undefined, 1000][random(4)];
  const options = { on, how, nullsEqual: random(3) === 0, ...some({ algorithm: algorithm(), maintainOrder, limit }) };
  if (random(8) === 0)
    return [
      `unique of ${on.length}`,
      async () => whole(await engine.unique(left, { on, keep: ['first', 'last', 'none'][random(3)] })),
    ];
  if (of === 4) return [`joinCount ${how}`, () => engine.joinCount(left, right, options)];
  if (of === 5) {
    return [
      `joinIndices ${how}`,
      async () => {
        const found = await engine.joinIndices(left, right, { ...options, maxOutputRows: 2e6 });
        checkRows(found.left, left.numRows);
        checkRows(found.right, right.numRows);
      },
    ];
  }
  return [`join ${how} by ${on.length}`, async () => whole(await engine.join(left, right, { ...options, maxOutputRows: 1e6 }))];
}

/** Whether the engine still sorts and joins. */
async function checkEngine(engine) {
  const keys = Int32Array.from({ length: 1000 }, (_, i) => (i * 7919) % 1000);
  const sorted = await engine.sortPairs(keys, keys);
  if (!sorted.keys.every((key, i) => key === i && sorted.values[i] === i)) throw new Error('A sort is wrong afterwards');
  const joined = await engine.joinKeys({ keys, values: keys }, { keys, values: keys });
  if (joined.keys.length !== 1000 || !joined.r.every((value, i) => value === joined.s[i]))
    throw new Error('A join is wrong afterwards');
}

const outcomes = new Map();
const count = (outcome) => outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
const engines = [];
for (const hostDevices of [1, 2, 3, 4, 8]) {
  for (const limits of [{}, { deviceMemoryLimit: '1MiB' }, { memoryLimit: '48MiB', deviceMemoryLimit: '4MiB' }]) {
    engines.push(await createEngine({ device: 'cpu', threads: 2, hostDevices, memoryLimit: '512MiB', ...limits }));
  }
}

for (let round = 0; round < rounds; round++) {
  const random = ofRound(seed, round);
  const engine = engines[random(engines.length)];
  const shared = random(3) > 0;
  const inputs = new Inputs(shared ? SharedArrayBuffer : ArrayBuffer, random);
  const [name, call] = drawCall(engine, inputs, random);
  const where = `seed ${seed}, round ${round}: ${name}, written by ${shared ? 'a worker' : 'this thread'}`;
  const late = setTimeout(() => {
    console.error(`${where}: no end after ${LONGEST_CALL_MS / 1000} s`);
    process.exit(1);
  }, LONGEST_CALL_MS);
  const flag = new Int32Array(new SharedArrayBuffer(8));
  flag[0] = 1;
  const scribbles = numbers(seed + round).below;
  const arrays = inputs.buffers.map((buffer) => new Uint8Array(buffer));
  if (shared) worker.postMessage({ buffers: inputs.buffers, busy: flag.buffer, seed: seed + round });
  let outcome;
  const ended = call().then(
    () => 'done',
    (error) => error,
  );
  ended.then((value) => {
    outcome = value;
  });
  while (outcome === undefined) {
    if (!shared) scribble(arrays, scribbles);
    await new Promise((resolve) => setImmediate(resolve));
  }
  Atomics.store(flag, 0, 0);
  if (shared) Atomics.wait(flag, 1, 0);
  clearTimeout(late);
  if (outcome !== 'done' && !ACCEPTED.has(outcome.code)) {
    console.error(where, outcome);
    process.exit(1);
  }
  count(outcome === 'done' ? 'done' : outcome.code);
  try {
    await checkEngine(engine);
  } catch (error) {
    console.error(where, error);
    process.exit(1);
  }
}
console.log(`changing inputs: seed ${seed}, ${rounds} rounds:`, Object.fromEntries(outcomes));
await worker.terminate();
for (const engine of engines) await engine.dispose();
