/**
 * FlatBuffers, read by descriptions of their tables. A description lists a table's slots in order, as its .fbs file does; each
 * slot has a kind (int64, text, table, list, ...) that checks what it is about to read against the bytes that are there, and
 * reads it once. So damaged or hostile bytes give an IpcError: never an endless loop, a large allocation or a wild read.
 */

/** What is wrong with IPC bytes, and where. Callers make a WarpjoinError of it that names the argument or file. */
export class IpcError extends Error {
  /** The same problem, seen from one level further out. */
  within(place: string): IpcError {
    const separator = /^[.[]/.test(this.message) ? '' : ': ';
    return new IpcError(`${place}${separator}${this.message}`);
  }
}

/** `error` as seen from `place`, where it is an IpcError. */
export function within(place: string, error: unknown): unknown {
  return error instanceof IpcError ? error.within(place) : error;
}

/** Tables lead to tables; no schema that makes sense leads further. */
const deepest = 128;

/**
 * Offsets of damaged bytes may lead to one place many times, so that reading takes longer than in proportion to the bytes.
 * Writers may share a text or two.
 */
const sharedBytes = 1 << 20;

/** What reading a table counts as: its own bytes may be few, and others' too. */
const bytesPerTable = 16;

/** The bytes of one flatbuffer. */
class Source {
  readonly view: DataView;
  readonly #text: Buffer;
  /** How many bytes may still be read, those that are read twice counted twice. */
  #budget: number;

  constructor(bytes: Uint8Array) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#budget = bytes.byteLength + sharedBytes;
  }

  /** Throws unless `length` bytes at `at` are there. Reading them counts as `cost` bytes. */
  take(at: number, length: number, what: string, cost = length): void {
    const size = this.view.byteLength;
    if (at < 0 || at + length > size)
      throw new IpcError(`${what} of ${length} bytes at byte ${at} does not fit into ${size} bytes`);
    this.#budget -= cost;
    if (this.#budget < 0) throw new IpcError('its parts overlap');
  }

  /** Where the offset at `at` leads to. */
  target(at: number): number {
    this.take(at, 4, 'an offset');
    const distance = this.view.getUint32(at, true);
    if (distance === 0) throw new IpcError('an offset leads nowhere');
    return at + distance;
  }

  text(at: number, length: number): string {
    return this.#text.toString('utf8', at, at + length);
  }
}

/** How a value lies in a table or list. */
export interface Slot<T> {
  /** Bytes where the value, or the offset that leads to it, lies. */
  readonly size: number;
  /** What a table without the slot means. */
  readonly absent: T;
  /** Reads the value at `at`, where `size` bytes are there. `before`: the slots of the table that come before this one. */
  read(source: Source, at: number, depth: number, before: Readonly<Record<string, unknown>>): T;
  /** Throws an IpcError for a value that makes no sense. */
  check?(value: T): void;
}

// biome-ignore lint/suspicious/noExplicitAny: the slots of a table have nothing in common but their shape
export type Slots = Readonly<Record<string, Slot<any>>>;
export type Decoded<S extends Slots> = { readonly [K in keyof S]: S[K] extends Slot<infer T> ? T : never };

const scalar = <T>(size: number, read: (view: DataView, at: number) => T): ((absent: T) => Slot<T>) => {
  return (absent) => ({ size, absent, read: ({ view }, at) => read(view, at) });
};
export const bool = scalar(1, (view, at) => view.getUint8(at) !== 0);
export const uint8 = scalar(1, (view, at) => view.getUint8(at));
export const int16 = scalar(2, (view, at) => view.getInt16(at, true));
export const int32 = scalar(4, (view, at) => view.getInt32(at, true));
/** As a number: what none can hold is refused. */
export const int64 = scalar(8, (view, at) => {
  const value = view.getInt32(at + 4, true) * 2 ** 32 + view.getUint32(at, true);
  if (!Number.isSafeInteger(value)) throw new IpcError(`${view.getBigInt64(at, true)} is not supported: it is too large`);
  return value;
});

/** The same slot, but for one of these values. */
export function among(slot: Slot<number>, ...allowed: readonly number[]): Slot<number> {
  return {
    ...slot,
    check(value) {
      if (!allowed.includes(value)) throw new IpcError(`expected one of ${allowed.join(', ')} but found ${value}`);
    },
  };
}

/** The same slot, but for no negative value. */
export function atLeastZero(slot: Slot<number>): Slot<number> {
  return {
    ...slot,
    check(value) {
      if (value < 0) throw new IpcError(`expected no negative number but found ${value}`);
    },
  };
}

export const text: Slot<string | null> = {
  size: 4,
  absent: null,
  read(source, at) {
    const start = source.target(at);
    source.take(start, 4, 'a text');
    const length = source.view.getUint32(start, true);
    source.take(start + 4, length, 'a text');
    return source.text(start + 4, length);
  },
};

/** A table that an offset leads to. */
export function table<S extends Slots>(slots: S): Slot<Decoded<S> | null> {
  return { size: 4, absent: null, read: (source, at, depth) => readTable(source, source.target(at), slots, depth) };
}

/** One of several tables: `tag` names the slot that says which, by its position in `variants`. */
export function union<T>(tag: string, variants: readonly (Slots | undefined)[]): Slot<T | null> {
  return {
    size: 4,
    absent: null,
    read(source, at, depth, before) {
      const slots = variants[before[tag] as number];
      if (!slots) throw new IpcError(`expected a known kind but found ${before[tag]}`);
      return readTable(source, source.target(at), slots, depth) as T;
    },
  };
}

/** A list that an offset leads to; none where there is no offset. */
export function list<T>(element: Slot<T> | (() => Slot<T>)): Slot<readonly NonNullable<T>[]> {
  return {
    size: 4,
    absent: [],
    read(source, at, depth) {
      const { size, read } = typeof element === 'function' ? element() : element;
      const start = source.target(at);
      source.take(start, 4, 'a list');
      const length = source.view.getUint32(start, true);
      source.take(start + 4, length * size, `a list of ${length}`);
      const values: NonNullable<T>[] = [];
      for (let index = 0; index < length; index++) {
        try {
          values.push(read(source, start + 4 + index * size, depth, {})!);
        } catch (error) {
          throw within(`[${index}]`, error);
        }
      }
      return values;
    },
  };
}

/** Scalars side by side, each aligned to its size: an element of lists. */
export function struct<S extends Readonly<Record<string, Slot<number>>>>(members: S): Slot<Decoded<S>> {
  const align = (at: number, size: number) => Math.ceil(at / size) * size;
  let end = 0;
  const places = Object.entries(members).map(([name, slot]) => {
    const at = align(end, slot.size);
    end = at + slot.size;
    return { name, slot, at };
  });
  const size = align(end, Math.max(...places.map(({ slot }) => slot.size)));
  return {
    size,
    absent: {} as Decoded<S>,
    read(source, start) {
      const values: Record<string, number> = {};
      for (const { name, slot, at } of places) values[name] = readSlot(source, name, slot, start + at, 0, values);
      return values as Decoded<S>;
    },
  };
}

/** The value at `at`, checked; 0: what the slot means where it is absent. */
function readSlot<T>(
  source: Source,
  name: string,
  slot: Slot<T>,
  at: number,
  depth: number,
  before: Readonly<Record<string, unknown>>,
): T {
  try {
    const value = at === 0 ? slot.absent : slot.read(source, at, depth, before);
    slot.check?.(value);
    return value;
  } catch (error) {
    throw within(`.${name}`, error);
  }
}

function readTable<S extends Slots>(source: Source, at: number, slots: S, depth: number): Decoded<S> {
  if (depth > deepest) throw new IpcError(`its tables are nested deeper than ${deepest}`);
  source.take(at, 4, 'a table', bytesPerTable);
  const { view } = source;
  // Tables share lists of slots.
  const vtable = at - view.getInt32(at, true);
  source.take(vtable, 4, 'a list of slots', 0);
  const [vtableSize, tableSize] = [view.getUint16(vtable, true), view.getUint16(vtable + 2, true)];
  source.take(vtable, vtableSize, 'a list of slots', 0);
  source.take(at, tableSize, 'a table', 0);
  const values: Record<string, unknown> = {};
  let entry = 4;
  for (const [name, slot] of Object.entries(slots)) {
    const offset = entry + 2 <= vtableSize ? view.getUint16(vtable + entry, true) : 0;
    if (offset !== 0 && (offset < 4 || offset + slot.size > tableSize))
      throw new IpcError(`.${name}: the slot lies outside of its table`);
    values[name] = readSlot(source, name, slot, offset === 0 ? 0 : at + offset, depth + 1, values);
    entry += 2;
  }
  return values as Decoded<S>;
}

/** The table that the flatbuffer `bytes` is. Throws an IpcError for bytes that are none. */
export function readRoot<S extends Slots>(bytes: Uint8Array, slots: S): Decoded<S> {
  try {
    const source = new Source(bytes);
    return readTable(source, source.target(0), slots, 0);
  } catch (error) {
    throw within('metadata', error);
  }
}
