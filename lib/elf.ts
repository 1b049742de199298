/** Whether a file can be a program's part at all: to map one that is cut short ends the process, with a bus error. */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { messageOf } from './errors.js';
import { formatBytes } from './sizes.js';

/** The numbers of processors in ELF's header, by process.arch. */
const MACHINES: Readonly<Record<number, string>> = { 62: 'x64', 183: 'arm64' };
const ENTRY_BYTES = 56;

/** Why a file is no shared library for this processor, in one line; undefined where its header and its length agree with that. */
export function elfProblem(path: string, arch: string = process.arch): string | undefined {
  let file: number;
  try {
    file = openSync(path, 'r');
  } catch (error) {
    return messageOf(error);
  }
  try {
    const head = Buffer.alloc(8192);
    const length = readSync(file, head);
    // 64 bits, least byte first.
    if (length < 64 || head.readUInt32BE(0) !== 0x7f454c46 || head[4] !== 2 || head[5] !== 1) {
      return 'the file is damaged: it is no 64-bit ELF file';
    }
    const machine = MACHINES[head.readUInt16LE(18)] ?? 'another processor';
    if (machine !== arch) return `the file is for ${machine}, and this Node.js for ${arch}`;
    const table = Number(head.readBigUInt64LE(32));
    const entries = head.readUInt16LE(56);
    let needed = table + entries * ENTRY_BYTES; // bytes, by what the system would map
    for (let at = table; at < table + entries * ENTRY_BYTES; at += ENTRY_BYTES) {
      if (at + ENTRY_BYTES > length) break; // tools may have moved the table
      needed = Math.max(needed, Number(head.readBigUInt64LE(at + 8)) + Number(head.readBigUInt64LE(at + 32)));
    }
    const { size } = fstatSync(file);
    return size < needed ? `the file is damaged: it has ${formatBytes(size)} of at least ${formatBytes(needed)}` : undefined;
  } catch (error) {
    return messageOf(error); // a directory
  } finally {
    closeSync(file);
  }
}
