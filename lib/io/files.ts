/** Output that appears whole or not at all, in every file format. */
import { type FileHandle, open, readlink, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { WarpjoinError } from '../errors.js';
import { compressors } from './compression.js';
import { asWriteError, fileError, systemReasons } from './file-errors.js';
import { type Compression, compressionOf, STANDARD } from './formats.js';

const largestWrite = 1 << 30; // one write(2) moves at most 2^31 - 4096 bytes
const mostLinks = 40; // as many as Linux follows

/** The file that a path stands for, through symbolic links; it may not exist yet. */
async function targetOf(path: string): Promise<string> {
  let target = path;
  for (let links = 0; links < mostLinks; links++) {
    const next = await readlink(target).catch(() => undefined); // no link, or nothing there
    if (next === undefined) return target;
    target = resolve(dirname(target), next);
  }
  throw fileError(path, systemReasons.ELOOP!);
}

type Append = (bytes: Uint8Array) => Promise<void>;

/** Where a result goes. */
export interface Output {
  /** Of a file; "-" is standard output. */
  readonly path: string;
  readonly signal?: AbortSignal | undefined;
  /** Told of bytes that were written. */
  readonly onBytes?: (bytes: number) => void;
}

/**
 * Hands `fill` a function that appends bytes to the file, compressed where its name ends in .gz or .zst. "-" is standard output. A
 * regular file is written beside its place and renamed at the end, so that a failure or an abort leaves what was there before; a
 * pipe or device is written directly. A symbolic link stays, and so do the permissions of a file that is there.
 */
export async function writeWhole({ path, signal, onBytes }: Output, fill: (append: Append) => Promise<void>): Promise<void> {
  const { compression } = compressionOf(path);
  const filled = compression ? compressing(path, compression, fill) : fill;
  const counted = (append: Append): Promise<void> =>
    filled(async (bytes) => {
      await append(bytes);
      onBytes?.(bytes.byteLength);
    });
  return path === STANDARD ? writeStandard(signal, counted) : writeFile(path, signal, counted);
}

async function writeStandard(signal: AbortSignal | undefined, fill: (append: Append) => Promise<void>): Promise<void> {
  const { stdout } = process;
  const ignore = () => {}; // the write that fails says so, too
  stdout.on('error', ignore);
  try {
    await fill(async (bytes) => {
      signal?.throwIfAborted();
      await new Promise<void>((resolve, reject) => stdout.write(bytes, (error) => (error ? reject(error) : resolve())));
    });
  } catch (error) {
    throw signal?.aborted && error === signal.reason ? error : asWriteError('standard output', error);
  } finally {
    stdout.off('error', ignore);
  }
}

/** Throws ERR_NOT_SUPPORTED where this Node.js can't compress so. */
export function checkCompression(path: string): void {
  const { compression } = compressionOf(path);
  if (!compression || compressors[compression]) return;
  const wanted = 'Node.js 22.15 or later compresses with Zstandard; ".gz" works on any.';
  throw new WarpjoinError(
    'ERR_NOT_SUPPORTED',
    `${path}: writing ".${compression}" with Node.js ${process.versions.node} is not supported yet. ${wanted}`,
  );
}

function compressing(path: string, compression: Compression, fill: (append: Append) => Promise<void>) {
  checkCompression(path);
  return async (append: Append): Promise<void> => {
    const encoder = compressors[compression]!();
    const written = (async () => {
      for await (const bytes of encoder) await append(bytes as Uint8Array);
    })();
    // Where writing fails, nobody reads the encoder any more, and it would never drain.
    const failed = written.then(() => new Promise<never>(() => {}));
    const accepted = (bytes: Uint8Array) =>
      new Promise<void>((resolve, reject) => encoder.write(bytes, (error) => (error ? reject(error) : resolve())));
    try {
      await fill((bytes) => Promise.race([accepted(bytes), failed]));
      encoder.end();
      await written;
    } catch (error) {
      encoder.destroy();
      await written.catch(() => {});
      throw error;
    }
  };
}

async function writeFile(path: string, signal: AbortSignal | undefined, fill: (append: Append) => Promise<void>): Promise<void> {
  let partial: string | undefined;
  let file: FileHandle | undefined;
  try {
    const target = await targetOf(path);
    const existing = await stat(target).catch(() => undefined);
    if (existing?.isDirectory()) throw fileError(path, systemReasons.EISDIR!);
    if (!existing || existing.isFile()) partial = join(dirname(target), `.${basename(target)}.${process.pid}.partial`);
    file = await open(partial ?? target, 'w');
    if (partial && existing) await file.chmod(existing.mode & 0o777);
    const handle = file;
    await fill(async (bytes) => {
      for (let at = 0; at < bytes.byteLength; ) {
        signal?.throwIfAborted();
        const { bytesWritten } = await handle.write(bytes, at, Math.min(bytes.byteLength - at, largestWrite));
        at += bytesWritten;
      }
    });
    await file.close();
    file = undefined;
    if (partial) await rename(partial, target);
  } catch (error) {
    await file?.close().catch(() => {});
    if (partial) await rm(partial, { force: true }).catch(() => {});
    throw signal?.aborted && error === signal.reason ? error : asWriteError(path, error);
  }
}
