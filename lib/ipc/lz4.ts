/** LZ4 frames, as lz4_Frame_format.md and lz4_Block_format.md of LZ4 describe them. Checksums are not compared. */
import { IpcError } from './flatbuffer.js';

const magic = 0x184d2204;
/** Shorter copies are made byte by byte: a call takes longer than they do. */
const shortCopy = 24;

const damaged = (what: string) => new IpcError(`the LZ4 frame is damaged: ${what}`);

/**
 * Decompresses the frame at the start of `from` into `into`. Gives the number of bytes, at most those that `into` holds. Takes time in
 * proportion to the bytes of both. Throws an IpcError for a frame that is damaged or holds more.
 */
export function readLz4(from: Uint8Array, into: Uint8Array): number {
  const view = new DataView(from.buffer, from.byteOffset, from.byteLength);
  if (from.length < 7 || view.getUint32(0, true) !== magic) throw damaged('it does not begin as one');
  const flags = from[4]!;
  if (flags >> 6 !== 1) throw damaged(`it is of version ${flags >> 6}`);
  if (flags & 1) throw damaged('it needs a dictionary, which Arrow does not have');
  const blockEnd = flags & 16 ? 4 : 0;
  let at = flags & 8 ? 15 : 7;
  let to = 0;
  for (;;) {
    if (at + 4 > from.length) throw damaged('it is cut off');
    const header = view.getUint32(at, true);
    at += 4;
    if (header === 0) return to;
    const size = header & 0x7fffffff;
    const end = at + size;
    if (end > from.length) throw damaged(`a block of ${size} bytes is cut off`);
    if (header >>> 31 === 0) to = readBlock(from, at, end, into, to);
    else {
      if (size > into.length - to) throw tooLong(into);
      into.set(from.subarray(at, end), to);
      to += size;
    }
    at = end + blockEnd;
  }
}

const tooLong = ({ length }: Uint8Array) => damaged(`it holds more than ${length} bytes`);

/** Sequences of literals and a match each; a match may begin in an earlier block. Gives where the block's bytes end. */
function readBlock(from: Uint8Array, start: number, end: number, into: Uint8Array, begin: number): number {
  let [at, to] = [start, begin];
  const limit = into.length;
  while (at < end) {
    const token = from[at++]!;
    let literals = token >> 4;
    if (literals === 15) {
      let more = 255;
      for (; more === 255 && at < end; literals += more) more = from[at++]!;
    }
    if (literals > end - at) throw damaged('its literals are cut off');
    if (literals > limit - to) throw tooLong(into);
    if (literals > shortCopy) {
      into.set(from.subarray(at, at + literals), to);
      at += literals;
      to += literals;
    } else for (const stop = at + literals; at < stop; ) into[to++] = from[at++]!;
    // The last sequence has no match.
    if (at === end) return to;
    if (end - at < 2) throw damaged('a match is cut off');
    const offset = from[at]! | (from[at + 1]! << 8);
    at += 2;
    let length = token & 15;
    if (length === 15) {
      let more = 255;
      for (; more === 255 && at < end; length += more) more = from[at++]!;
    }
    length += 4;
    if (offset === 0 || offset > to) throw damaged('a match begins before it');
    if (length > limit - to) throw tooLong(into);
    copyMatch(into, to, offset, length);
    to += length;
  }
  throw damaged('a block has no end');
}

/** Copies `length` bytes from `offset` before `to`: they may overlap, and then repeat. */
export function copyMatch(bytes: Uint8Array, to: number, offset: number, length: number): void {
  const begin = to - offset;
  if (length <= shortCopy) {
    for (let at = 0; at < length; at++) bytes[to + at] = bytes[begin + at]!;
    return;
  }
  // Twice as many with each copy: all since `begin` repeat.
  for (let done = 0; done < length; ) {
    const count = Math.min(length - done, offset + done);
    bytes.copyWithin(to + done, begin, begin + count);
    done += count;
  }
}
