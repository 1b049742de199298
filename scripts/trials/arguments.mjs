// Arguments that make no sense: node scripts/trials/arguments.mjs --seed N --rounds N [--first N]
//
// Every round spoils the arguments of one call: tables as plain objects, typed arrays, options and signals get values of other
// types and realms, getters and proxies that throw, lengths and offsets that lie. The call must give a result, a WarpjoinError
// that is no ERR_INTERNAL, or the signal's reason; and the engine must still work. --first N --rounds 1 repeats round N.
import { types } from 'node:util';
import vm from 'node:vm';
import * as arrow from 'apache-arrow';
import { createEngine, WarpjoinError } from '../../dist/index.js';
import { ofRound, trialOptions } from './random.mjs';

const { seed, first, rounds } = trialOptions({ first: 0, rounds: 2000 });
const otherRealm = vm.createContext();
const inOtherRealm = (code) => vm.runInContext(code, otherRealm);

console.log(`arguments: seed ${seed}, rounds ${first} to ${first + rounds - 1}`);
const engine = await createEngine({ device: 'cpu', threads: 1, memoryLimit: '256MiB' });
const counts = { results: 0, refused: 0, aborted: 0 };
let round = first;
try {
  for (; round < first + rounds; round++) await run(ofRound(seed, round));
  console.log(`arguments: ${rounds} rounds, ${counts.results} results, ${counts.refused} refused, ${counts.aborted} aborted`);
} catch (error) {
  console.error(
    `arguments: ${error.stack}\nin round ${round}; again: node scripts/trials/arguments.mjs --seed ${seed} --first ${round} --rounds 1`,
  );
  process.exitCode = 1;
}
await engine.dispose();

async function run(random) {
  const reason = new Error('the signal of this round');
  const { name, args, call } = callOf(random, reason);
  let outcome;
  try {
    outcome = call();
  } catch (error) {
    throw new Error(`${name} threw before it gave a promise`, { cause: error });
  }
  try {
    const result = await outcome;
    await result?.dispose?.();
    counts.results++;
  } catch (error) {
    if (error === reason || isReasonOf(args.at(-1), error) || error?.name === 'AbortError') counts.aborted++;
    else if (error instanceof WarpjoinError && error.code !== 'ERR_INTERNAL') counts.refused++;
    else throw new Error(`${name} rejected with ${describe(error)}`);
  }
  if (round % 64 === 0 && (await engine.joinCount(table(), table(), { on: 'k' })) !== 2)
    throw new Error(`a join of valid tables has another count after ${name}`);
}

/** Whether a call's options have a signal with this reason. */
function isReasonOf(options, error) {
  try {
    return options.signal.reason === error;
  } catch {
    return false;
  }
}

function describe(error) {
  return error instanceof Error ? error.stack : String(error);
}

/** One call with arguments that are spoiled at up to three places. */
function callOf(random, reason) {
  const of = (...choices) => choices[random(choices.length)];
  const signal = () => (random(3) ? {} : { signal: signalOf(random, reason) });
  const spoil = (value) => {
    for (let times = random(4); times > 0; times--) value = spoiled(value, random);
    return value;
  };
  const tableArgument = () => spoil(of(table, arrowTable, () => arrow.tableToIPC(arrowTable()))());
  const place = () => of({}, {}, { result: 'mapped' });
  const join = () =>
    spoil({
      on: of('k', ['k']),
      select: ['k', 't'],
      suffix: '_r',
      how: of('inner', 'left', 'full', 'semi'),
      ...place(),
      ...signal(),
    });
  const sort = () =>
    spoil({
      by: of('k', ['t', { column: 'k', descending: true }]),
      select: ['k'],
      algorithm: 'auto',
      limit: of(1, 2, 9),
      offset: of(0, 1),
      ...place(),
      ...signal(),
    });
  const pairs = () => spoil({ keys: Int32Array.of(3, 1, 2), values: Float64Array.of(1, 2, 3) });
  const calls = {
    join: () => [tableArgument(), tableArgument(), join()],
    joinCount: () => [tableArgument(), tableArgument(), spoil({ on: 'k', ...signal() })],
    joinIndices: () => [tableArgument(), tableArgument(), spoil({ on: 'k', maxOutputRows: 100, ...signal() })],
    sort: () => [tableArgument(), sort()],
    sortIndices: () => [tableArgument(), spoil({ by: of('k', 'd', ['t']), limit: 2, offset: 1, ...signal() })],
    isSorted: () => [tableArgument(), spoil({ by: of('k', 'd', ['t']), ...signal() })],
    searchSorted: () => [tableArgument(), tableArgument(), spoil({ by: of('k', 't'), side: 'right', ...signal() })],
    explain: () => (random(2) ? ['sort', tableArgument(), sort()] : [spoil('join'), tableArgument(), tableArgument(), join()]),
    load: () => [tableArgument(), spoil(signal())],
    sortPairs: () => [spoil(Int32Array.of(3, 1, 2)), spoil(Int8Array.of(1, 2, 3)), spoil({ descending: true, ...signal() })],
    joinKeys: () => [pairs(), pairs(), spoil({ algorithm: 'auto', ...signal() })],
    linkSpeeds: () => [spoil(signal())],
  };
  const name = of(...Object.keys(calls), 'createEngine');
  if (name === 'createEngine') {
    const options = spoil({ device: 'cpu', threads: 1, hostDevices: 2, memoryLimit: '64MiB', devices: undefined });
    return { name, args: [options], call: () => createEngine(options) };
  }
  const args = calls[name]();
  return { name, args, call: () => engine[name](...args) };
}

function columns() {
  return {
    k: arrow.vectorFromArray([1, null, 3], new arrow.Int32()),
    t: arrow.vectorFromArray(['a', 'bc', null], new arrow.Utf8()),
    d: arrow.vectorFromArray(
      [1, 2, 3].map((n) => Uint32Array.of(n, 0, 0, 0)),
      new arrow.Decimal(2, 20),
    ),
    w: arrow.vectorFromArray([1, 2, 3], new arrow.TimestampMillisecond()),
  };
}

function arrowTable() {
  return new arrow.Table(columns());
}

/** A table as a plain object: all that is read of it, so that all of it can be spoiled. */
function table() {
  const { schema, batches } = arrowTable();
  const typeOf = (type) => ({ ...type, typeId: type.typeId });
  return {
    schema: {
      fields: schema.fields.map(({ name, type, nullable }) => ({
        name,
        type: typeOf(type),
        nullable,
        metadata: new Map([['a', 'b']]),
      })),
      metadata: new Map(),
    },
    batches: batches.map(({ data }) => ({
      data: {
        length: data.length,
        children: data.children.map(({ type, length, offset, values, valueOffsets, nullBitmap, nullCount }) => ({
          type: typeOf(type),
          length,
          offset,
          values,
          valueOffsets,
          nullBitmap,
          _nullCount: nullCount,
        })),
      },
    })),
  };
}

/** The value with one of its parts, or all of it, replaced. */
function spoiled(value, random) {
  const isOpen = (one) =>
    typeof one === 'object' && one !== null && !ArrayBuffer.isView(one) && !types.isProxy(one) && !types.isMap(one);
  if (!isOpen(value) || random(12) === 0) return random(2) ? value : oddity(random);
  let parent = value;
  for (;;) {
    const names = types.isProxy(parent) ? [] : Object.keys(parent);
    if (names.length === 0) return value;
    const name = names[random(names.length)];
    if (isOpen(Object.getOwnPropertyDescriptor(parent, name).value) && random(6)) {
      parent = parent[name];
      continue;
    }
    try {
      const thrown = oddity(random);
      if (random(6) === 0)
        Object.defineProperty(parent, name, {
          get: () => {
            throw thrown;
          },
          enumerable: true,
          configurable: true,
        });
      else if (random(8) === 0) delete parent[name];
      else parent[name] = oddity(random);
    } catch {} // frozen, or a proxy
    return value;
  }
}

function detached(array) {
  structuredClone(array.buffer, { transfer: [array.buffer] });
  return array;
}

/** A value that makes sense hardly anywhere. */
function oddity(random) {
  const odd = [
    () => undefined,
    () => null,
    () => true,
    () => [0, -1, 1, 3, 24, 1.5, Number.NaN, Number.POSITIVE_INFINITY, -(2 ** 31), 2 ** 31, 2 ** 32, 2 ** 53, 1e300][random(13)],
    () => [0n, -1n, 3n, 2n ** 64n][random(4)],
    () => ['', 'k', 'nope', 'full', '\n', '\0', 'x'.repeat(1000)][random(7)],
    () => Symbol('odd'),
    () => () => 1,
    () => () => {
      throw new WarpjoinError('ERR_OPTION', 'a callback');
    },
    () => [],
    () => ['k'],
    () => Object.assign(new Array(3), { 0: 'k', 2: 't' }),
    () => {
      const loop = [];
      loop.push(loop);
      return loop;
    },
    () => ({}),
    () => Object.create(null),
    () => new Map([[1, Symbol('odd')]]),
    () => new Date(Number.NaN),
    () => Promise.resolve(1),
    () => Object.create(AbortSignal.prototype),
    () => Object.create(Uint8Array.prototype),
    () =>
      new Proxy(
        {},
        {
          get: () => {
            throw new Error('a proxy\nof two lines');
          },
        },
      ),
    () =>
      new Proxy([], {
        get: () => {
          throw null;
        },
      }),
    () => {
      const { proxy, revoke } = Proxy.revocable([], {});
      revoke();
      return proxy;
    },
    () => ({
      [Symbol.toPrimitive]() {
        throw new Error('no primitive');
      },
      toString: null,
      constructor: { name: Symbol('odd') },
    }),
    () => new Uint8Array(random(40)),
    () => new Int32Array(random(8)),
    () => new BigInt64Array(random(8)).fill(-1n),
    () => new Float64Array(random(8)).fill(Number.NaN),
    () => new DataView(new ArrayBuffer(random(16))),
    () => new ArrayBuffer(random(64)),
    () => new SharedArrayBuffer(random(64)),
    () => detached(new Uint8Array(8)),
    () => detached(Int32Array.of(1, 2, 3)),
    () => inOtherRealm('new Uint8Array(16)'),
    () => inOtherRealm('Int32Array.of(1, 2, 3)'),
    () => inOtherRealm('new ArrayBuffer(16)'),
    () => inOtherRealm('new Map([["a", "b"]])'),
    () => inOtherRealm('new Error("another realm")'),
    () => inOtherRealm('[1, 2, 3]'),
    () => detached(inOtherRealm('Int32Array.of(1, 2, 3)')),
    () => arrow.vectorFromArray([1, 2, 3], new arrow.Int32()),
    () => new arrow.Decimal(2, 20, 24),
    () => new arrow.Int32(),
    () => table(),
    () => arrow.tableToIPC(arrowTable()).subarray(random(400)),
  ];
  return odd[random(odd.length)]();
}

/** Signals of all kinds: real ones, some that have little of one, and some that throw. */
function signalOf(random, reason) {
  const controller = new AbortController();
  const fails = () => {
    throw new Error('a signal that throws');
  };
  const kinds = [
    () => controller.signal,
    () => AbortSignal.abort(reason),
    () => {
      setImmediate(() => controller.abort(reason));
      return controller.signal;
    },
    () => ({ aborted: false, addEventListener() {} }),
    () => ({ aborted: true, addEventListener() {} }),
    () => ({ aborted: true, reason, addEventListener() {} }),
    () => ({ aborted: false, reason, addEventListener: (_, listener) => listener() }),
    () => ({ aborted: false, addEventListener: fails }),
    () => ({ aborted: false, addEventListener() {}, removeEventListener: fails, throwIfAborted: fails }),
    () => ({
      get aborted() {
        return fails();
      },
      addEventListener() {},
    }),
    () => {
      let asked = 0;
      return {
        get aborted() {
          return asked++ < 3 ? false : fails();
        },
        addEventListener() {},
      };
    },
    () => ({
      aborted: true,
      get reason() {
        return fails();
      },
      addEventListener() {},
    }),
    () => oddity(random),
  ];
  return kinds[random(kinds.length)]();
}
