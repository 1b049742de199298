/** What all file formats share: errors that name the file, and output that appears whole or not at all. */
import { type FileHandle, open, readlink, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { WarpjoinError } from '../errors.js';
import { compressors } from './compression.js';
import { type Compression, compressionOf, STANDARD } from './formats.js';

const systemReasons: Record<string, string> = {
  ENOENT: 'no such file or directory',
  EACCES: 'permission denied',
  EISDIR: 'is a directory',
  ENOTDIR: 'a part of the path is not a directory',
  ELOOP: 'too many symbolic links',
  ENOSPC: 'no space left on the device',
  EROFS: 'the file system is read-only',
};

/** ERR_FILE in one line: the file (and line), then what is wrong. */
export function fileError(path: string, what: string, cause?: unknown, line?: number): WarpjoinError {
  return new WarpjoinError('ERR_FILE', `${path}${line === undefined ? '' : `:${line}`}: ${what}`, { cause });
}

/** What went wrong, in one line: the system's reason in words where there is one. */
export function systemReason(error: unknown): string {
  const code = (error as NodeJS.ErrnoException)?.code;
  return (code && systemReasons[code]) ?? String((error as Error)?.message ?? error).split('\n', 1)[0]!;
}

/** Turns whatever a library or the system threw into ERR_FILE; aborts and our own errors pass as they are. */
export function asFileError(path: string, format: string, error: unknown, signal?: AbortSignal): unknown {
  if (error instanceof WarpjoinError || (signal?.aborted && error === signal.reason)) return error;
  const code = (error as NodeJS.ErrnoException)?.code;
  if (code && systemReasons[code]) return fileError(path, systemReasons[code], error);
  const message = String((error as Error)?.message ?? error).split('\n', 1)[0];
  return fileError(path, `not a readable ${format} file, or a damaged one (${message})`, error);
}

/** The same for a file that is being written. */
export function asWriteError(path: string, error: unknown): unknown {
  if (error instanceof WarpjoinError) return error;
  return fileError(path, `cannot write: ${systemReason(error)}`, error);
}

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

/**
 * Hands `fill` a function that appends bytes to the file, compressed where its name ends in .gz or .zst. "-" is standard output. A
 * regular file is written beside its place and renamed at the end, so that a failure or an abort leaves what was there before; a
 * pipe or device is written directly. A symbolic link stays, and so do the permissions of a file that is there.
 */
export async function writeWhole(
  path: string,
  signal: AbortSignal | undefined,
  fill: (append: Append) => Promise<void>,
): Promise<void> {
  const { compression } = compressionOf(path);
  const filled = compression ? compressing(path, compression, fill) : fill;
  return path === STANDARD ? writeStandard(signal, filled) : writeFile(path, signal, filled);
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
