/**
 * Zstandard frames, as RFC 8878 describes them, for Node.js versions whose zlib has no Zstandard. Unlike the packages that were tried it
 * gives the true number of bytes, and takes time in proportion to the bytes even where they are damaged. Checksums are not compared.
 */
import { IpcError } from './flatbuffer.js';
import { copyMatch } from './lz4.js';

const magic = 0xfd2fb528;
const mostLiterals = 1 << 17;
const mostHuffmanBits = 11;

const damaged = (what: string) => new IpcError(`the Zstandard frame is damaged: ${what}`);
const tooLong = ({ length }: Uint8Array) => damaged(`it holds more than ${length} bytes`);
const highestBit = (value: number) => 31 - Math.clz32(value);

/** What a state of a finite state entropy decoder stands for, and which state is next: `base` and so many bits. */
interface Fse {
  readonly accuracy: number;
  readonly symbols: Uint8Array;
  readonly bits: Uint8Array;
  readonly bases: Uint16Array;
}

/** Symbols by the next `accuracy` bits, and how many of these they take. */
interface Huffman {
  readonly accuracy: number;
  readonly symbols: Uint8Array;
  readonly bits: Uint8Array;
}

/** Bits that are read from the last byte to the first; the first bit of those asked for is the highest. */
class Bits {
  /** Bits that are left; less than none: more were asked for, and were zeros. */
  left: number;

  constructor(
    readonly from: Uint8Array,
    readonly start: number,
    end: number,
  ) {
    const last = end > start ? from[end - 1]! : 0;
    if (last === 0) throw damaged('a bit stream has no end');
    this.left = (end - 1 - start) * 8 + highestBit(last);
  }

  /** The next bits, 24 at most. */
  read(count: number): number {
    this.left -= count;
    return this.#at(this.left, count);
  }

  #at(position: number, count: number): number {
    if (position < 0) return position <= -count ? 0 : this.#at(0, position + count) << -position;
    const { from } = this;
    const at = this.start + (position >> 3);
    const word = from[at]! | (from[at + 1]! << 8) | (from[at + 2]! << 16) | (from[at + 3]! << 24);
    return (word >>> (position & 7)) & ((1 << count) - 1);
  }
}

/** The kinds of symbols of sequences: what a code adds bits to, its default distribution, and the largest accuracy. */
interface Kind {
  readonly accuracy: number;
  readonly codes: number;
  readonly fallback: Fse;
}

const extended = (plain: number, least: number, bits: readonly number[]) => {
  const counts = [...new Array<number>(plain).fill(0), ...bits];
  let next = least;
  const bases = counts.map((count) => {
    const base = next;
    next += 1 << count;
    return base;
  });
  return { bases: Int32Array.from(bases), bits: Uint8Array.from(counts) };
};
const literalLengths = extended(16, 0, [1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
const matchLengths = extended(32, 3, [1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);

const times = (count: number, value: number) => new Array<number>(count).fill(value);
const kinds: Readonly<Record<'literals' | 'offsets' | 'matches', Kind>> = {
  literals: {
    accuracy: 9,
    codes: 36,
    fallback: fseTable([4, 3, ...times(11, 2), 1, 1, 1, ...times(9, 2), 3, 2, ...times(5, 1), ...times(4, -1)], 6),
  },
  offsets: { accuracy: 8, codes: 32, fallback: fseTable([...times(6, 1), 2, 2, 2, ...times(15, 1), ...times(5, -1)], 5) },
  matches: { accuracy: 9, codes: 53, fallback: fseTable([1, 4, 3, ...times(6, 2), ...times(37, 1), ...times(7, -1)], 6) },
};

function fseTable(counts: readonly number[], accuracy: number): Fse {
  const size = 1 << accuracy;
  const [symbols, bits, bases] = [new Uint8Array(size), new Uint8Array(size), new Uint16Array(size)];
  const next = counts.map((count) => Math.abs(count));
  let rare = size;
  for (const [symbol, count] of counts.entries()) if (count < 0) symbols[--rare] = symbol;
  const step = (size >> 1) + (size >> 3) + 3;
  let position = 0;
  for (const [symbol, count] of counts.entries()) {
    for (let placed = 0; placed < count; placed++) {
      symbols[position] = symbol;
      do position = (position + step) & (size - 1);
      while (position >= rare);
    }
  }
  for (let state = 0; state < size; state++) {
    const value = next[symbols[state]!]!++;
    bits[state] = accuracy - highestBit(value);
    bases[state] = (value << bits[state]!) - size;
  }
  return { accuracy, symbols, bits, bases };
}

/** A distribution at `at`, of symbols below `codes`, as a table, and where it ends. */
function readFse(from: Uint8Array, at: number, end: number, most: number, codes: number): { table: Fse; end: number } {
  let position = at * 8;
  const read = (count: number): number => {
    const byte = position >> 3;
    const word = from[byte]! | (from[byte + 1]! << 8) | (from[byte + 2]! << 16);
    const value = (word >>> (position & 7)) & ((1 << count) - 1);
    position += count;
    return value;
  };
  const accuracy = 5 + read(4);
  if (accuracy > most) throw damaged(`a distribution has the accuracy ${accuracy}`);
  const counts: number[] = [];
  let left = 1 << accuracy;
  while (left > 0) {
    if (counts.length >= codes || position > end * 8) throw damaged('a distribution has no end');
    const bits = highestBit(left + 1) + 1;
    const lower = (1 << (bits - 1)) - 1;
    const threshold = (1 << bits) - 2 - left;
    let value = read(bits);
    if ((value & lower) < threshold) {
      position--;
      value &= lower;
    } else if (value > lower) value -= threshold;
    const count = value - 1;
    left -= Math.abs(count);
    counts.push(count);
    for (let repeat = count === 0 ? 3 : 0; repeat === 3; ) {
      repeat = read(2);
      counts.push(...times(repeat, 0));
      if (counts.length > codes) throw damaged('a distribution has too many symbols');
    }
  }
  const stop = Math.ceil(position / 8);
  if (left < 0 || stop > end) throw damaged('a distribution does not fit');
  return { table: fseTable(counts, accuracy), end: stop };
}

/** The code of literals at `at`, and where it ends. */
function readHuffman(from: Uint8Array, at: number, end: number): { table: Huffman; end: number } {
  const header = from[at++]!;
  const size = header < 128 ? header : (header - 126) >> 1;
  const stop = at + size;
  if (stop > end) throw damaged('a code is cut off');
  const weights = header < 128 ? readWeights(from, at, stop) : nibbles(from, at, header - 127);
  const sum = weights.reduce((sum, weight) => sum + ((1 << weight) >> 1), 0);
  const accuracy = highestBit(sum) + 1;
  const rest = (1 << accuracy) - sum;
  if (sum === 0 || accuracy > mostHuffmanBits || (rest & (rest - 1)) !== 0) throw damaged('a code is incomplete');
  weights.push(highestBit(rest) + 1);
  const [symbols, bits] = [new Uint8Array(1 << accuracy), new Uint8Array(1 << accuracy)];
  let next = 0;
  for (let weight = 1; weight <= accuracy; weight++) {
    for (const [symbol, of] of weights.entries()) {
      if (of !== weight) continue;
      const stop = next + (1 << (weight - 1));
      symbols.fill(symbol, next, stop);
      bits.fill(accuracy + 1 - weight, next, stop);
      next = stop;
    }
  }
  return { table: { accuracy, symbols, bits }, end: stop };
}

const nibbles = (from: Uint8Array, at: number, count: number) =>
  Array.from({ length: count }, (_, index) => (index % 2 === 0 ? from[at + (index >> 1)]! >> 4 : from[at + (index >> 1)]! & 15));

/** Weights by two states that take turns, until there are no bits. */
function readWeights(from: Uint8Array, at: number, end: number): number[] {
  const { table, end: begin } = readFse(from, at, end, 6, 13);
  const bits = new Bits(from, begin, end);
  const states = [bits.read(table.accuracy), bits.read(table.accuracy)];
  const weights: number[] = [];
  for (let turn = 0; ; turn = 1 - turn) {
    const state = states[turn]!;
    weights.push(table.symbols[state]!);
    states[turn] = table.bases[state]! + bits.read(table.bits[state]!);
    if (bits.left < 0) {
      weights.push(table.symbols[states[1 - turn]!]!);
      if (weights.length > 255) throw damaged('a code has too many symbols');
      return weights;
    }
    if (weights.length > 255) throw damaged('a code has too many symbols');
  }
}

/** Literals of the block that is being read. */
let scratch: Uint8Array | undefined;

class Frame {
  #to = 0;
  readonly #literals: Uint8Array;
  #huffman: Huffman | undefined;
  #tables: Partial<Record<keyof typeof kinds, Fse>> = {};
  /** The last offsets. */
  #recent: [number, number, number] = [1, 4, 8];

  constructor(
    private readonly from: Uint8Array,
    private readonly into: Uint8Array,
  ) {
    scratch ??= new Uint8Array(mostLiterals);
    this.#literals = scratch;
  }

  read(): number {
    const { from, into } = this;
    const view = new DataView(from.buffer, from.byteOffset, from.byteLength);
    if (from.length < 6 || view.getUint32(0, true) !== magic) throw damaged('it does not begin as one');
    const flags = from[4]!;
    const isSingle = (flags >> 5) & 1;
    if (flags & 8) throw damaged('it has a reserved bit');
    if (flags & 3) throw damaged('it needs a dictionary, which Arrow does not have');
    let at = 6 - isSingle + [isSingle, 2, 4, 8][flags >> 6]!;
    for (;;) {
      if (at + 3 > from.length) throw damaged('it is cut off');
      const header = from[at]! | (from[at + 1]! << 8) | (from[at + 2]! << 16);
      at += 3;
      const [type, size] = [(header >> 1) & 3, header >> 3];
      const end = at + (type === 1 ? 1 : size);
      if (end > from.length) throw damaged(`a block of ${size} bytes is cut off`);
      if (type === 2) this.#block(at, end);
      else if (type === 3) throw damaged('a block is of a kind that there is not');
      else {
        if (size > into.length - this.#to) throw tooLong(into);
        if (type === 0) into.set(from.subarray(at, end), this.#to);
        else into.fill(from[at]!, this.#to, this.#to + size);
        this.#to += size;
      }
      at = end;
      if (header & 1) return this.#to;
    }
  }

  #block(start: number, end: number): void {
    const { from, into } = this;
    const literals = this.#readLiterals(start, end);
    let at = literals.end;
    let used = 0;
    const copyLiterals = (length: number): void => {
      if (length > literals.length - used) throw damaged('it has too few literals');
      if (length > into.length - this.#to) throw tooLong(into);
      if (length > 24) into.set(this.#literals.subarray(used, used + length), this.#to);
      else for (let index = 0; index < length; index++) into[this.#to + index] = this.#literals[used + index]!;
      this.#to += length;
      used += length;
    };
    if (at >= end) throw damaged('a block has no sequences');
    let count = from[at++]!;
    if (count > 127) {
      const more = count === 255 ? 2 : 1;
      if (at + more > end) throw damaged('a block is cut off');
      count = count === 255 ? 0x7f00 + (from[at]! | (from[at + 1]! << 8)) : ((count - 128) << 8) | from[at]!;
      at += more;
    }
    if (count > 0) {
      const modes = at < end ? from[at++]! : 3;
      if (modes & 3) throw damaged('a block has a reserved bit');
      const places = { literals: modes >> 6, offsets: (modes >> 4) & 3, matches: (modes >> 2) & 3 };
      for (const name of ['literals', 'offsets', 'matches'] as const) at = this.#readTable(name, places[name], at, end);
      this.#sequences(new Bits(from, at, end), count, copyLiterals);
    }
    copyLiterals(literals.length - used);
  }

  #sequences(bits: Bits, count: number, copyLiterals: (length: number) => void): void {
    const { into } = this;
    const [literals, offsets, matches] = [this.#tables.literals!, this.#tables.offsets!, this.#tables.matches!];
    let literalState = bits.read(literals.accuracy);
    let offsetState = bits.read(offsets.accuracy);
    let matchState = bits.read(matches.accuracy);
    for (let left = count; ; ) {
      const [literalCode, matchCode] = [literals.symbols[literalState]!, matches.symbols[matchState]!];
      const offsetBits = offsets.symbols[offsetState]!;
      const low = Math.min(offsetBits, 16);
      let offset = 2 ** offsetBits + bits.read(offsetBits - low) * 2 ** low + bits.read(low);
      const length = matchLengths.bases[matchCode]! + bits.read(matchLengths.bits[matchCode]!);
      const literalLength = literalLengths.bases[literalCode]! + bits.read(literalLengths.bits[literalCode]!);
      offset = this.#offset(offset, literalLength === 0);
      copyLiterals(literalLength);
      if (offset <= 0 || offset > this.#to) throw damaged('a match begins before it');
      if (length > into.length - this.#to) throw tooLong(into);
      copyMatch(into, this.#to, offset, length);
      this.#to += length;
      if (--left === 0) break;
      literalState = literals.bases[literalState]! + bits.read(literals.bits[literalState]!);
      matchState = matches.bases[matchState]! + bits.read(matches.bits[matchState]!);
      offsetState = offsets.bases[offsetState]! + bits.read(offsets.bits[offsetState]!);
      if (bits.left < 0) break;
    }
    if (bits.left !== 0) throw damaged('its sequences do not end with their bits');
  }

  /** The offset that a value means: up to 3 it is one of the last ones. */
  #offset(value: number, noLiterals: boolean): number {
    const [first, second, third] = this.#recent;
    const index = value > 3 ? 4 : value - 1 + (noLiterals ? 1 : 0);
    if (index === 0) return first;
    const offset = index === 1 ? second : index === 2 ? third : index === 3 ? first - 1 : value - 3;
    this.#recent = index === 1 ? [offset, first, third] : [offset, first, second];
    return offset;
  }

  #readTable(name: keyof typeof kinds, mode: number, at: number, end: number): number {
    const { accuracy, codes, fallback } = kinds[name];
    if (mode === 0) this.#tables[name] = fallback;
    else if (mode === 2) {
      const { table, end: stop } = readFse(this.from, at, end, accuracy, codes);
      this.#tables[name] = table;
      return stop;
    } else if (mode === 1) {
      const symbol = at < end ? this.from[at]! : codes;
      if (symbol >= codes) throw damaged('a block has a symbol that there is not');
      this.#tables[name] = { accuracy: 0, symbols: Uint8Array.of(symbol), bits: new Uint8Array(1), bases: new Uint16Array(1) };
      return at + 1;
    } else if (!this.#tables[name]) throw damaged('a block repeats a table that there is not');
    return at;
  }

  /** Fills the block's literals: how many there are, and where their part of the block ends. */
  #readLiterals(start: number, end: number): { length: number; end: number } {
    const { from } = this;
    const first = from[start]!;
    const [type, format] = [first & 3, (first >> 2) & 3];
    const [byte, word] = [(index: number) => (start + index < end ? from[start + index]! : 0), () => byte(1) | (byte(2) << 8)];
    if (type < 2) {
      const [header, length] =
        format === 1 ? [2, (first >> 4) | (byte(1) << 4)] : format === 3 ? [3, (first >> 4) | (word() << 4)] : [1, first >> 3];
      const at = start + header;
      const stop = at + (type === 0 ? length : 1);
      if (stop > end || length > mostLiterals) throw damaged('its literals are cut off');
      if (type === 0) this.#literals.set(from.subarray(at, stop));
      else this.#literals.fill(from[at]!, 0, length);
      return { length, end: stop };
    }
    const header = format < 2 ? 3 : format + 2;
    const low = (first | (word() << 8) | (byte(3) << 24)) >>> 4;
    const bits = format < 2 ? 10 : format === 2 ? 14 : 18;
    const mask = (1 << bits) - 1;
    const length = low & mask;
    const size = ((low >>> bits) | (bits === 18 ? byte(4) << 10 : 0)) & mask;
    let at = start + header;
    const stop = at + size;
    if (stop > end || length > mostLiterals) throw damaged('its literals are cut off');
    if (type === 2) {
      const { table, end } = readHuffman(from, at, stop);
      this.#huffman = table;
      at = end;
    }
    if (!this.#huffman) throw damaged('a block repeats a code that there is not');
    if (format === 0) this.#decode(this.#huffman, at, stop, 0, length);
    else {
      if (at + 6 > stop) throw damaged('its literals are cut off');
      const each = (length + 3) >> 2;
      let begin = at + 6;
      for (let stream = 0; stream < 4; stream++) {
        const next = stream < 3 ? begin + (from[at + 2 * stream]! | (from[at + 2 * stream + 1]! << 8)) : stop;
        if (next > stop || stream * each > length) throw damaged('its literals are cut off');
        this.#decode(this.#huffman, begin, next, stream * each, stream < 3 ? (stream + 1) * each : length);
        begin = next;
      }
    }
    return { length, end: stop };
  }

  /** Decodes literals `first` to `end` from the bits of a stream, which must end with them. */
  #decode({ accuracy, symbols, bits: lengths }: Huffman, start: number, stop: number, first: number, end: number): void {
    const [from, literals] = [this.from, this.#literals];
    let { left } = new Bits(from, start, stop);
    const mask = (1 << accuracy) - 1;
    for (let to = first; to < end && left > 0; to++) {
      const position = left - accuracy;
      const at = start + (position >> 3);
      const index =
        position >= 0
          ? ((from[at]! | (from[at + 1]! << 8) | (from[at + 2]! << 16)) >>> (position & 7)) & mask
          : ((from[start]! | (from[start + 1]! << 8)) & ((1 << left) - 1)) << -position;
      literals[to] = symbols[index]!;
      left -= lengths[index]!;
      if (to === end - 1 && left === 0) return;
    }
    if (first !== end || left !== 0) throw damaged('its literals do not end with their bits');
  }
}

/** Decompresses the frame at the start of `from` into `into`, as readLz4() does. */
export const readZstd = (from: Uint8Array, into: Uint8Array): number => new Frame(from, into).read();
