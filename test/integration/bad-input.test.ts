/** What bad input is answered with: the code, and what the message names. */
import { createContext, runInContext } from 'node:vm';
import * as arrow from 'apache-arrow';
import { afterAll, describe, expect, test } from 'vitest';
import { createEngine, type Engine, WarpjoinError } from '../../lib/index.js';
import { testEngine } from '../support/engines.js';
import { failure, rows, table } from '../support/tables.js';

const engine = testEngine(1, { memoryLimit: '256MiB', threads: 2 });
afterAll(async () => (await engine).dispose());

const left = table({ id: new arrow.Int32(), name: new arrow.Utf8() }, { id: [1, 2, 3], name: ['a', 'b', 'c'] });
const right = table({ id: new arrow.Int32(), when: new arrow.TimestampMillisecond() }, { id: [2, 3, 4], when: [0, 1, 2] });
const apart = table({ zip: new arrow.Int32() }, { zip: [1] });
type Call = (of: Engine) => Promise<unknown>;

test.each<[string, Call, string, RegExp | string]>([
  [
    'unknown key column',
    (of) => of.join(left, right, { on: 'idd' as 'id' }),
    'ERR_COLUMN_NOT_FOUND',
    /^Expected a column of both tables for on but received "idd"\. The left table has "id" and "name"\. The right table has "id" and "when"\. Did you mean "id"\?$/,
  ],
  [
    'key column of one table',
    (of) => of.join(left, right, { on: ['id', 'name' as 'id'] }),
    'ERR_COLUMN_NOT_FOUND',
    'Expected a column of both tables for on but received "name". The left table has "id" and "name". The right table has "id" and "when".',
  ],
  [
    'tables without a common column',
    (of) => of.join(left, apart, { on: 'id' as never }),
    'ERR_COLUMN_NOT_FOUND',
    'Expected a column of both tables for on but received "id". The left table has "id" and "name". The right table has "zip". ' +
      'They share no column name: leftOn and rightOn name the columns of each.',
  ],
  [
    'unknown right key column',
    (of) => of.join(left, right, { leftOn: 'id', rightOn: 'wen' as 'when' }),
    'ERR_COLUMN_NOT_FOUND',
    /^Expected a column of the right table for rightOn but received "wen"\. .* Did you mean "when"\?$/,
  ],
  [
    'unknown sort column',
    (of) => of.sort(left, { by: 'nmae' as 'name' }),
    'ERR_COLUMN_NOT_FOUND',
    /^Expected a column of the input table for by but received "nmae"\. .* Did you mean "name"\?$/,
  ],
  [
    'unknown result column',
    (of) => of.join(left, right, { on: 'id', select: ['whn' as 'when'] }),
    'ERR_COLUMN_NOT_FOUND',
    /^Expected columns of the result for select but received "whn"\. .* Did you mean "when"\?$/,
  ],
  [
    'keys that do not compare',
    (of) => of.join(left, right, { leftOn: 'name', rightOn: 'id' }),
    'ERR_KEY_TYPE',
    /"name" of the left table \(utf8\) and "id" of the right table \(int32\) don't compare/,
  ],
  [
    'an integer and a timestamp',
    (of) => of.join(left, right, { leftOn: 'id', rightOn: 'when' }),
    'ERR_KEY_TYPE',
    /\(int32\) and "when" of the right table \(timestamp\[ms\]\)/,
  ],
  [
    'empty on',
    (of) => of.join(left, right, { on: [] }),
    'ERR_OPTION',
    /^Expected a column name or an array of at least one column name for on but received \[\]\.$/,
  ],
  [
    'no on',
    (of) => of.join(left, right, {} as { on: 'id' }),
    'ERR_OPTION',
    /^Expected on, or leftOn and rightOn, for join but received none of them\.$/,
  ],
  [
    'unknown how',
    (of) => of.join(left, right, { on: 'id', how: 'lfet' as 'left' }),
    'ERR_OPTION',
    /for how but received "lfet"\. Did you mean "left"\?$/,
  ],
  [
    'how: outer',
    (of) => of.join(left, right, { on: 'id', how: 'outer' as 'full' }),
    'ERR_OPTION',
    /for how but received "outer"\. Did you mean "full"\?$/,
  ],
  [
    'unknown option',
    (of) => of.join(left, right, { on: 'id', sufix: '_r' } as { on: 'id' }),
    'ERR_OPTION',
    /for join but received "sufix"\. Did you mean "suffix"\?$/,
  ],
  [
    'no table',
    (of) => of.join([{ id: 1 }] as never, right, { on: 'id' }),
    'ERR_INVALID_TABLE',
    /^Expected an apache-arrow Table, .* for the left table but received/,
  ],
  [
    'no right table',
    (of) => of.join(left, undefined as never, { on: 'id' }),
    'ERR_INVALID_TABLE',
    /for the right table but received undefined/,
  ],
  [
    'no IPC bytes',
    (of) => of.sort(new TextEncoder().encode('id,name\n1,a\n'), { by: 'id' }),
    'ERR_INVALID_TABLE',
    /^The input table is not readable as Arrow IPC bytes/,
  ],
  [
    'limits that are no sizes',
    () => createEngine({ memoryLimit: 'plenty' }),
    'ERR_OPTION',
    /^Expected a size: .* for memoryLimit but received "plenty"\.$/,
  ],
  [
    'device limits that are no sizes',
    () => createEngine({ deviceMemoryLimit: '120%' }),
    'ERR_OPTION',
    /^Expected a size: .* for deviceMemoryLimit but received "120%"\.$/,
  ],
  [
    'unknown engine option',
    () => createEngine({ hostdevices: 2 } as object),
    'ERR_OPTION',
    /for createEngine but received "hostdevices"\. Did you mean "hostDevices"\?$/,
  ],
  [
    'a key twice',
    (of) => of.join(left, left, { on: ['id', 'id'] }),
    'ERR_OPTION',
    /^Expected each column once for on but received "id"\.$/,
  ],
  [
    'GPUs for the processor',
    () => createEngine({ device: 'cpu', devices: [0] }),
    'ERR_OPTION',
    /^Expected no devices for an engine with device "cpu" but received \[0\]\.$/,
  ],
  [
    'arrays of different length',
    (of) => of.sortPairs(Int32Array.of(1, 2), Int32Array.of(1)),
    'ERR_INVALID_TABLE',
    /values has 1 values and not 2/,
  ],
])('%s', async (_, call, code, message) => {
  const error = await failure(call(await engine));
  expect(error).toBeInstanceOf(WarpjoinError);
  expect(error.code).toBe(code);
  expect(error.message).toMatch(message);
});

describe('buffers that are not what they claim', () => {
  const valid = (): arrow.Data =>
    arrow.makeData({ type: new arrow.Int32(), data: Int32Array.of(1, 2, 3, 4), nullBitmap: Uint8Array.of(0b1011), nullCount: 1 });
  const text = (): arrow.Data =>
    arrow.makeData({
      type: new arrow.Utf8(),
      length: 4,
      valueOffsets: Int32Array.of(0, 1, 2, 3, 4),
      data: new TextEncoder().encode('abcd'),
    });
  const tableOf = (data: arrow.Data): object => ({
    schema: { fields: [new arrow.Field('k', data.type), new arrow.Field('row', new arrow.Int32())] },
    batches: [
      { data: { length: 4, children: [data, arrow.makeData({ type: new arrow.Int32(), data: Int32Array.of(0, 1, 2, 3) })] } },
    ],
  });
  const change = (data: arrow.Data, changes: object): arrow.Data =>
    Object.assign(Object.create(Object.getPrototypeOf(data)), data, changes);
  function detached<T extends ArrayBufferView<ArrayBuffer>>(view: T): T {
    structuredClone(view.buffer, { transfer: [view.buffer] });
    return view;
  }

  test.each<[string, () => arrow.Data]>([
    ['values cut short', () => change(valid(), { values: Int32Array.of(1, 2, 3) })],
    ['no values', () => change(valid(), { values: undefined })],
    ['values detached', () => change(valid(), { values: detached(Int32Array.of(1, 2, 3, 4)) })],
    ['validity cut short', () => change(valid(), { nullBitmap: new Uint8Array(0) })],
    ['validity missing though nulls were counted', () => change(valid(), { nullBitmap: undefined })],
    ['validity detached', () => change(valid(), { nullBitmap: detached(new Uint8Array(8)) })],
    ['a bit offset past the validity', () => change(valid(), { offset: 100 })],
    ['offsets cut short', () => change(text(), { valueOffsets: Int32Array.of(0, 1, 2, 3) })],
    ['offsets detached', () => change(text(), { valueOffsets: detached(Int32Array.of(0, 1, 2, 3, 4)) })],
    ['offsets past the bytes', () => change(text(), { valueOffsets: Int32Array.of(0, 1, 2, 3, 400) })],
    ['offsets that fall', () => change(text(), { valueOffsets: Int32Array.of(0, 3, 1, 3, 4) })],
    ['negative offsets', () => change(text(), { valueOffsets: Int32Array.of(-8, 1, 2, 3, 4) })],
    ['bytes detached', () => change(text(), { values: detached(new TextEncoder().encode('abcd') as Uint8Array<ArrayBuffer>) })],
  ])('%s', async (_, make) => {
    const bad = tableOf(make()) as arrow.Table;
    const good = tableOf(make().type.typeId === arrow.Type.Utf8 ? text() : valid()) as arrow.Table;
    const own = await engine;
    for (const call of [
      () => own.sort(bad, { by: 'k' }),
      () => own.sort(bad, { by: 'row' }),
      () => own.join(bad, good, { on: 'k' }),
      () => own.join(good, bad, { on: 'k' }),
    ]) {
      const error = await failure(call());
      expect(error.code).toBe('ERR_INVALID_TABLE');
      expect(error.message).toContain('k');
    }
    // A column that nobody asked for is not looked at.
    expect((await own.sort(bad, { by: 'row', select: ['row'] })).numRows).toBe(4);
    expect((await own.sort(good, { by: 'k' })).numRows).toBe(4);
  });
});

describe('arguments that throw or lie', () => {
  const realm = createContext();
  const inRealm = <T>(code: string): T => runInContext(code, realm) as T;
  /** The table as a plain object, with `change` made to its first field or column. */
  const plain = (change: { field?: object; type?: object; data?: object } = {}) => {
    const { schema, batches } = left;
    const [field, ...fields] = schema.fields;
    const [data, ...children] = batches[0]!.data.children;
    const type = Object.defineProperties(
      { ...field!.type, typeId: field!.type.typeId },
      Object.getOwnPropertyDescriptors(change.type ?? {}),
    );
    const first = { name: field!.name, type, nullable: true };
    const { length, offset, values, nullBitmap } = data!;
    return {
      schema: { fields: [Object.defineProperties(first, Object.getOwnPropertyDescriptors(change.field ?? {})), ...fields] },
      batches: [
        {
          data: {
            length,
            children: [
              Object.defineProperties(
                { length, offset, values, nullBitmap },
                Object.getOwnPropertyDescriptors(change.data ?? {}),
              ),
              ...children,
            ],
          },
        },
      ],
    } as unknown as arrow.Table;
  };
  const throwing = (name: string) => ({
    get [name]() {
      throw new TypeError('no such luck');
    },
  });

  test('bytes of another realm are read, and detached arrays of one refused', async () => {
    const own = await engine;
    const bytes = inRealm<(of: number[]) => Uint8Array>('(bytes) => Uint8Array.from(bytes)')([...arrow.tableToIPC(left)]);
    expect((await own.sort(bytes, { by: 'id' })).numRows).toBe(3);
    expect((await own.sort(bytes.buffer as ArrayBuffer, { by: 'id' })).numRows).toBe(3);
    const keys = inRealm<Int32Array<ArrayBuffer>>('Int32Array.of(3, 1)');
    expect([...(await own.sortPairs(keys, keys)).keys]).toEqual([1, 3]);
    structuredClone(keys.buffer, { transfer: [keys.buffer] });
    const error = await failure(own.sortPairs(keys, keys));
    expect([error.code, error.message]).toEqual(['ERR_INVALID_TABLE', 'The buffer of keys of sortPairs is detached.']);
  });

  test.each<[string, arrow.Table, RegExp]>([
    [
      'a decimal of 24 bits',
      plain({ type: { ...new arrow.Decimal(2, 5, 24), typeId: arrow.Type.Decimal } }),
      /"id" .* decimal24\(5, 2\), which is not supported yet/,
    ],
    ['an integer of 24 bits', plain({ type: { bitWidth: 24 } }), /"id" .* type int24, which is not supported/],
    ['a float of no precision', plain({ type: { typeId: arrow.Type.Float, precision: 7 } }), /"id" .* which is not supported/],
    [
      'a type that is an object',
      plain({ type: { bitWidth: { valueOf: () => 32 } } }),
      /column "id" of a type that makes no sense/,
    ],
    ['a negative offset', plain({ data: { offset: -1 } }), /column "id" with the offset -1/],
    ['an offset that is no number', plain({ data: { offset: '1' } }), /column "id" with the offset "1"/],
    [
      'a negative length',
      { schema: left.schema, batches: [{ data: { length: -1, children: left.batches[0]!.data.children } }] } as never,
      /record batch \(0\)/,
    ],
    ['metadata that is no map', plain({ field: { metadata: 5 } }), /metadata of the column "id" that is no Map/],
    ['a field that throws', plain({ field: throwing('nullable') }), /^The left table can't be read: no such luck$/],
    ['a type that throws', plain({ type: throwing('bitWidth') }), /^The left table can't be read: no such luck$/],
    ['a column that throws', plain({ data: throwing('values') }), /^The left table can't be read: no such luck$/],
    ['a table that throws', throwing('schema') as never, /^The left table can't be read: no such luck$/],
  ])('%s', async (_, bad, message) => {
    const own = await engine;
    const error = await failure(own.join(bad as never, right, { on: 'id' } as never));
    expect(error).toBeInstanceOf(WarpjoinError);
    expect(['ERR_INVALID_TABLE', 'ERR_NOT_SUPPORTED']).toContain(error.code);
    expect(error.message).toMatch(message);
    expect(await own.joinCount(plain(), right, { on: 'id' } as never)).toBe(2);
  });

  test('options that throw', async () => {
    const own = await engine;
    for (const call of [
      own.sort(left, throwing('by') as never),
      own.sort(left, { by: throwing('column') } as never),
      own.join(left, right, { on: 'id', ...{ select: new Proxy([], { get: () => throwing('x').x }) } } as never),
      own.joinCount(left, right, new Proxy({}, { ownKeys: () => throwing('x').x as never }) as never),
      own.linkSpeeds(throwing('measure')),
      createEngine(throwing('threads')),
    ]) {
      const error = await failure(call);
      expect(error.code).toBe('ERR_OPTION');
      expect(error.message).toMatch(/threw: no such luck$/);
    }
    const keys = Object.defineProperties(Int8Array.of(1), Object.getOwnPropertyDescriptors(throwing('length')));
    expect((await failure(own.sortPairs(keys, Int8Array.of(1)))).message).toBe("sortPairs can't be read: no such luck");
    const pairs = await failure(own.joinKeys(throwing('keys') as never, { keys: Int8Array.of(1), values: Int8Array.of(1) }));
    expect([pairs.code, pairs.message]).toEqual(['ERR_INVALID_TABLE', "r can't be read: no such luck"]);
  });

  test('lists of names are taken as they are when the call is made', async () => {
    const select = ['id'];
    const sorted = (await engine).sort(left, { by: 'id', select: select as 'id'[] });
    select[0] = 'nonsense';
    expect((await sorted).schema.names).toEqual(['id']);
  });

  describe('signals of other classes', () => {
    /** What the oldest libraries have. */
    const small = (state: { aborted: boolean; reason?: unknown }) => {
      const listeners = new Set<() => void>();
      return {
        ...state,
        addEventListener: (_: string, listener: () => void) => listeners.add(listener),
        abort() {
          this.aborted = true;
          for (const listener of listeners) listener();
        },
      };
    };

    test('work without throwIfAborted, reason or removeEventListener', async () => {
      const own = await engine;
      const options = (signal: object) => ({ by: 'id', signal }) as unknown as { by: 'id' };
      expect((await own.sort(left, options(small({ aborted: false })))).numRows).toBe(3);
      const reason = new Error('enough');
      expect(await failure(own.sort(left, options(small({ aborted: true, reason }))))).toBe(reason);
      expect(await failure(own.sort(left, options(small({ aborted: true }))))).toMatchObject({ name: 'AbortError' });
      const signal = small({ aborted: false, reason });
      const [before, call] = [own.sort(left, { by: 'id' }), own.sort(left, options(signal))];
      signal.abort();
      expect(await failure(call)).toBe(reason);
      expect((await before).numRows).toBe(3);
    });

    test.each<[string, object]>([
      ['aborted', Object.assign(throwing('aborted'), { addEventListener() {} })],
      ['addEventListener', { aborted: false, addEventListener: () => throwing('x').x }],
      [
        'aborted after a while',
        (() => {
          let asked = 0;
          return Object.defineProperty({ addEventListener() {} }, 'aborted', { get: () => asked++ > 2 && throwing('x').x });
        })(),
      ],
      ['nothing, but is no signal', Object.create(AbortSignal.prototype)],
    ])('that throw: %s', async (_, signal) => {
      const own = await engine;
      const error = await failure(own.sort(left, { by: 'id', signal } as never));
      expect(error).toBeInstanceOf(WarpjoinError);
      expect(error.code).toBe('ERR_OPTION');
      expect((await own.sort(left, { by: 'id' })).numRows).toBe(3);
    });
  });
});

describe('memory that could go away', () => {
  const resizable = (values: Int32Array): Int32Array => {
    const ResizableBuffer = ArrayBuffer as unknown as new (length: number, options: object) => ArrayBuffer; // ES2024
    const own = new Int32Array(new ResizableBuffer(values.byteLength, { maxByteLength: 1 << 20 }));
    own.set(values);
    return own;
  };
  const keys = Int32Array.of(3, 1, 2);
  const tableOf = (values: Int32Array): arrow.Table => {
    const data = arrow.makeData({ type: new arrow.Int32(), data: keys });
    return new arrow.Table({ k: new arrow.Vector([Object.assign(data.clone(), { values })]) });
  };

  test('resizable buffers are refused', async () => {
    const own = await engine;
    const [fixed, bad] = [tableOf(keys), tableOf(resizable(keys))];
    for (const [call, where] of [
      [() => own.sort(bad, { by: 'k' }), /input table has a column "k" whose values are in a resizable ArrayBuffer/],
      [() => own.joinCount(fixed, bad, { on: 'k' }), /right table has a column "k" whose values are in a resizable ArrayBuffer/],
      [() => own.load(bad), /loaded table has a column "k" whose values are in a resizable ArrayBuffer/],
      [() => own.sortPairs(keys, resizable(keys)), /^The values of sortPairs are in a resizable ArrayBuffer/],
    ] as const) {
      const error = await failure(call());
      expect([error.code, error.message]).toEqual(['ERR_INVALID_TABLE', expect.stringMatching(where)]);
      expect(error.message).toContain('slice()');
    }
    expect(rows(await own.sort(fixed, { by: 'k' }))).toEqual([{ k: 1 }, { k: 2 }, { k: 3 }]);
  });

  test('shared buffers are taken as they are', async () => {
    const shared = new Int32Array(new SharedArrayBuffer(keys.byteLength));
    shared.set(keys);
    const { keys: sorted } = await (await engine).sortPairs(shared, shared);
    expect([...sorted]).toEqual([1, 2, 3]);
  });
});

describe('nothing to work on', () => {
  const none = left.slice(0, 0);
  const noBatches = new arrow.Table(right.schema, []);
  const nulls = table({ id: new arrow.Int32(), name: new arrow.Utf8() }, { id: [null, null], name: ['x', null] });

  test.each([
    ['inner', 0, 0, 0, 0],
    ['left', 0, 3, 0, 2],
    ['right', 3, 0, 0, 3],
    ['full', 3, 3, 0, 5],
    ['semi', 0, 0, 0, 0],
    ['anti', 0, 3, 0, 2],
  ] as const)('%s join of no rows, and of null keys', async (how, leftEmpty, rightEmpty, bothEmpty, nullKeys) => {
    const own = await engine;
    for (const algorithm of ['radix-hash', 'sort-merge'] as const) {
      const options = { on: 'id', how, algorithm } as const;
      const empty = await own.join(none, right, options);
      expect(empty.numRows).toBe(leftEmpty);
      expect(empty.schema.names).toEqual(
        how === 'semi' || how === 'anti'
          ? ['id', 'name']
          : how === 'full'
            ? ['id', 'name', 'id_right', 'when']
            : ['id', 'name', 'when'],
      );
      expect((await own.join(left, noBatches, options)).numRows).toBe(rightEmpty);
      expect((await own.join(none, noBatches, options)).numRows).toBe(bothEmpty);
      expect((await own.join(nulls, right, options)).numRows).toBe(nullKeys);
      expect(rows(await own.join(nulls, nulls, options)).length).toBe(
        { inner: 0, left: 2, right: 2, full: 4, semi: 0, anti: 2 }[how],
      );
    }
  });

  test('sorts', async () => {
    const own = await engine;
    expect((await own.sort(none, { by: 'id' })).numRows).toBe(0);
    expect((await own.sort(noBatches, { by: ['when', 'id'] })).schema.names).toEqual(['id', 'when']);
    expect(rows(await own.sort(nulls, { by: 'id' }))).toEqual(rows(nulls));
    const sorted = await own.sortPairs(new Float64Array(0), new Uint32Array(0));
    expect([sorted.keys.length, sorted.values.length]).toEqual([0, 0]);
    const joined = await own.joinKeys(
      { keys: new Int8Array(0), values: new Float32Array(0) },
      { keys: Int8Array.of(1), values: Float32Array.of(1) },
    );
    expect([joined.keys.length, joined.r.length, joined.s.length]).toEqual([0, 0, 0]);
  });
});
