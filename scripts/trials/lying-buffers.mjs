// Tables whose buffers lie: node scripts/trials/lying-buffers.mjs --seed N --rounds N [--first N]
//
// Every round makes a table of an int32 column and one of a random type, nested up to three levels, and spoils that one at up to
// three places: indices outside their dictionary, offsets that fall, pass the end or are negative, type ids that a union lacks, views
// of bytes that are not there, buffers and children that are too short, lengths, offsets and null counts that are wrong. The calls
// with it must give a result, which is read in full, or a WarpjoinError that is no ERR_INTERNAL; and the engine must still work.
// Worth most with an addon built with ASan (scripts/asan-addon.mjs). --first N --rounds 1 repeats round N.
import * as arrow from 'apache-arrow';
import { createEngine, WarpjoinError } from '../../dist/index.js';
import { ofRound, trialOptions } from './random.mjs';

const { seed, first, rounds } = trialOptions({ first: 0, rounds: 500 });

/** Draws types and values. */
class Draw {
  constructor(random) {
    this.random = random;
  }

  of(...choices) {
    return choices[this.random(choices.length)];
  }

  type(levels) {
    const flat = [
      () => new arrow.Int8(),
      () => new arrow.Uint16(),
      () => new arrow.Int64(),
      () => new arrow.Float64(),
      () => new arrow.Bool(),
      () => new arrow.Utf8(),
      () => new arrow.LargeUtf8(),
      () => new arrow.Utf8View(),
      () => new arrow.Binary(),
      () => new arrow.FixedSizeBinary(1 + this.random(20)),
      () => new arrow.Decimal(2, 30, 128),
      () => new arrow.TimestampMicrosecond(),
      () => new arrow.Null(),
      () => new arrow.Dictionary(new arrow.Utf8(), this.of(new arrow.Int8(), new arrow.Int32(), new arrow.Uint16())),
      () => new arrow.Dictionary(new arrow.Int64(), new arrow.Int32()),
    ];
    const field = (name) => new arrow.Field(name, this.type(levels - 1), true);
    const nested = [
      () => new arrow.List(field('item')),
      () => new arrow.LargeList(field('item')),
      () => new arrow.FixedSizeList(this.random(4), field('item')),
      () => new arrow.Struct([field('a'), field('b')]),
      () => new arrow.Map_(new arrow.Field('entries', new arrow.Struct([new arrow.Field('k', new arrow.Utf8()), field('v')]))),
      () => new arrow.Union(arrow.UnionMode.Sparse, [3, 7], [field('a'), field('b')]),
      () => new arrow.Union(arrow.UnionMode.Dense, [5, 0], [field('a'), field('b')]),
    ];
    return this.of(...flat, ...(levels > 0 ? [...nested, ...nested] : []))();
  }

  bytes(length) {
    return Uint8Array.from({ length }, () => this.random(256));
  }

  /** Validity bits, and how many are null. */
  nulls(length) {
    if (this.random(2)) return { nullCount: 0 };
    const nullBitmap = this.bytes(Math.ceil(length / 8) + this.random(3));
    let nullCount = 0;
    for (let i = 0; i < length; i++) nullCount += (nullBitmap[i >> 3] >> (i & 7)) & 1 ? 0 : 1;
    return { nullCount, nullBitmap };
  }

  /** Ascending offsets, and where they end. */
  offsets(Type, length) {
    const offsets = new Type(length + 1);
    let end = 0;
    for (let i = 1; i <= length; i++) {
      end += this.random(4) ? this.random(5) : this.random(30);
      offsets[i] = Type === Int32Array ? end : BigInt(end);
    }
    return { offsets, end };
  }

  data(type, length) {
    const nulls = this.nulls(length);
    const child = (index, size) => this.data(type.children[index].type, size);
    switch (type.typeId) {
      case arrow.Type.Null:
        return arrow.makeData({ type, length, nullCount: length });
      case arrow.Type.Bool:
        return arrow.makeData({ type, length, ...nulls, data: this.bytes(Math.ceil(length / 8)) });
      case arrow.Type.Utf8:
      case arrow.Type.Binary:
      case arrow.Type.LargeUtf8: {
        const { offsets, end } = this.offsets(type.typeId === arrow.Type.LargeUtf8 ? BigInt64Array : Int32Array, length);
        return arrow.makeData({ type, length, ...nulls, valueOffsets: offsets, data: this.text(end) });
      }
      case arrow.Type.Utf8View: {
        const bytes = this.text(200);
        const views = new Int32Array(4 * length);
        for (let i = 0; i < length; i++) {
          const size = this.random(40);
          views[4 * i] = size;
          if (size > 12) views.set([0, 0, this.random(200 - size)], 4 * i + 1);
          else new Uint8Array(views.buffer, 16 * i + 4, size).set(bytes.subarray(0, size));
        }
        return arrow.makeData({ type, length, ...nulls, views: new Uint8Array(views.buffer), variadicBuffers: [bytes] });
      }
      case arrow.Type.List:
      case arrow.Type.Map: {
        const { offsets, end } = this.offsets(Int32Array, length);
        return arrow.makeData({ type, length, ...nulls, valueOffsets: offsets, child: child(0, end) });
      }
      case arrow.Type.LargeList: {
        const { offsets, end } = this.offsets(BigInt64Array, length);
        return arrow.makeData({ type, length, ...nulls, valueOffsets: offsets, child: child(0, end) });
      }
      case arrow.Type.FixedSizeList:
        return arrow.makeData({ type, length, ...nulls, child: child(0, length * type.listSize) });
      case arrow.Type.Struct:
        return arrow.makeData({ type, length, ...nulls, children: type.children.map((_, index) => child(index, length)) });
      case arrow.Type.Union: {
        const typeIds = Int8Array.from({ length }, () => this.of(...type.typeIds));
        if (type.mode === arrow.UnionMode.Sparse)
          return arrow.makeData({ type, length, typeIds, children: type.children.map((_, index) => child(index, length)) });
        const sizes = type.typeIds.map(() => 0);
        const at = (id) => sizes[type.typeIds.indexOf(id)]++;
        const valueOffsets = Int32Array.from(typeIds, at);
        return arrow.makeData({
          type,
          length,
          typeIds,
          valueOffsets,
          children: type.children.map((_, index) => child(index, sizes[index])),
        });
      }
      case arrow.Type.Dictionary: {
        const size = 1 + this.random(20);
        const indices = new type.indices.ArrayType(length).map(() => this.random(size));
        const dictionary = new arrow.Vector([this.data(type.dictionary, size)]);
        return arrow.makeData({ type, length, ...nulls, data: indices, dictionary });
      }
      case arrow.Type.Timestamp:
        // Larger ones are no numbers in JavaScript.
        return arrow.makeData({ type, length, ...nulls, data: BigInt64Array.from({ length }, () => BigInt(this.random(1e9))) });
      default: {
        const bytes = this.bytes(length * type.ArrayType.BYTES_PER_ELEMENT * (type.byteWidth ?? (type.bitWidth === 128 ? 4 : 1)));
        return arrow.makeData({ type, length, ...nulls, data: new type.ArrayType(bytes.buffer) });
      }
    }
  }

  text(length) {
    return Uint8Array.from({ length }, () => 97 + this.random(26));
  }
}

/** A Data as a plain object whose fields can be set, children and the dictionary's chunks, too. */
function plain({ type, length, offset, nullCount, values, valueOffsets, nullBitmap, typeIds, children, dictionary, ...data }) {
  return {
    type,
    length,
    offset,
    _nullCount: nullCount,
    values,
    valueOffsets,
    nullBitmap: nullCount > 0 ? nullBitmap : undefined,
    typeIds,
    children: children.map(plain),
    dictionary,
    variadicBuffers: data.variadicBuffers,
  };
}

/** This Data and all below it. */
const nodesOf = (data) => [data, ...data.children.flatMap(nodesOf), ...(data.dictionary?.data ?? []).flatMap(nodesOf)];

/** Lies in one place. */
function spoil(root, random) {
  const nodes = nodesOf(root);
  const node = nodes[random(nodes.length)];
  const wrong = () => [-1, 0, 1, 127, 128, 255, 2 ** 31 - 1, -(2 ** 31), 1000, random(50)][random(10)];
  const arrays = ['values', 'valueOffsets', 'nullBitmap', 'typeIds'].filter((name) => node[name]?.length > 0);
  const array = node[arrays[random(arrays.length || 1)]];
  const set = (name, value) => {
    if (!Object.isFrozen(node))
      Reflect.defineProperty(node, name, { value, configurable: true, writable: true, enumerable: true });
  };
  switch (random(6)) {
    case 0:
    case 1:
    case 2:
      if (array) array[random(array.length)] = typeof array[0] === 'bigint' ? BigInt(wrong()) : wrong();
      return;
    case 3:
      if (array)
        set(
          arrays.find((name) => node[name] === array),
          array.subarray(0, random(array.length)),
        );
      return;
    case 4:
      if (node.children.length > 0) set('children', random(2) ? node.children.slice(1) : [...node.children, node.children[0]]);
      return;
    default:
      set(['length', 'offset', '_nullCount'][random(3)], wrong());
  }
}

const sound = new arrow.Table({ k: arrow.makeVector(Int32Array.of(3, 1, 2)) });
const counts = { results: 0, refused: 0 };
let round = first;

async function run(random) {
  const draw = new Draw(random);
  const length = draw.of(1, 3, 10, 70, 300);
  const type = draw.type(3);
  const k = arrow.makeVector(Int32Array.from({ length }, () => random(length)));
  const table = () => {
    const data = plain(draw.data(type, length));
    for (let times = random(4); times > 0; times--) spoil(data, random);
    return {
      schema: { fields: [new arrow.Field('k', new arrow.Int32(), false), new arrow.Field('p', type, true)] },
      batches: [{ data: { length, children: [k.data[0], data] } }],
    };
  };
  const [left, right] = [table(), table()];
  const calls = {
    join: () => engine.join(left, right, { on: 'k', how: draw.of('inner', 'left', 'right', 'full'), maxOutputRows: 1e6 }),
    joinBy: () => engine.join(left, right, { on: 'p', how: draw.of('inner', 'left', 'semi', 'full'), maxOutputRows: 1e6 }),
    count: () => engine.joinCount(left, right, { on: 'p' }),
    sort: () => engine.sort(left, { by: 'k' }),
    sortBy: () => engine.sort(left, { by: ['p', 'k'] }),
  };
  for (const [name, call] of Object.entries(calls)) {
    try {
      const result = await call();
      counts.results++;
      if (typeof result !== 'number') for (const column of result.schema.fields) read(result.getChild(column.name));
    } catch (error) {
      if (!(error instanceof WarpjoinError) || error.code === 'ERR_INTERNAL')
        throw new Error(`${name} of a ${type} rejected with ${error?.stack ?? error}`, { cause: error?.cause });
      counts.refused++;
    }
  }
  if ((await engine.joinCount(sound, sound, { on: 'k' })) !== 3) throw new Error('a join of sound tables has another count');
}

/** Reads all values: what is wrong inside a text or number is the caller's, but nothing is outside its buffer. */
function read(vector) {
  for (let row = 0; row < vector.length; row++) JSON.stringify(vector.get(row), (_, value) => `${typeof value}`);
}

console.log(`lying-buffers: seed ${seed}, rounds ${first} to ${first + rounds - 1}`);
const engine = await createEngine({ device: 'cpu', threads: 2, memoryLimit: '256MiB' });
try {
  for (; round < first + rounds; round++) await run(ofRound(seed, round));
  console.log(`lying-buffers: ${rounds} rounds, ${counts.results} results, ${counts.refused} refused`);
} catch (error) {
  console.error(
    `lying-buffers: ${error.stack}${error.cause ? `\ncaused by ${error.cause.stack}` : ''}\nin round ${round}; again: node scripts/trials/lying-buffers.mjs --seed ${seed} --first ${round} --rounds 1`,
  );
  process.exitCode = 1;
}
await engine.dispose();
