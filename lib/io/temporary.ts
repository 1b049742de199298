/** Temporary files: without names, so that they are gone with the process, however that ends. */
import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { access, type FileHandle, open, stat, statfs, unlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { WarpjoinError } from '../errors.js';
import type { NativeAddon } from '../native.js';
import { expected } from '../schema.js';
import { formatBytes } from '../sizes.js';
import type { FileAccess, Keep } from '../trace.js';
import { systemReason } from './file-errors.js';

/** File systems whose files are memory, by the number that statfs() gives them: tmpfs and ramfs. */
const IN_MEMORY = new Set([0x01021994, 0x858458f6]);
const ON_DISK = '/var/tmp';

/** Linux: a file that never had a name (open(2), O_TMPFILE). */
const NAMELESS = 0o20000000 | constants.O_DIRECTORY | constants.O_RDWR;
/** What systems and file systems say that have no such files: with EISDIR the flag is unknown. */
const NO_NAMELESS = new Set(['EISDIR', 'EOPNOTSUPP', 'EINVAL', 'ENOENT']);

async function isInMemory(folder: string): Promise<boolean> {
  return statfs(folder).then(
    ({ type }) => IN_MEMORY.has(type),
    () => true, // there is none
  );
}

/** The folder for temporary files: that of the environment. The system's own may be memory; then it is one on a disk. */
export async function temporaryFolder(system = '/tmp'): Promise<string> {
  const { TMPDIR, TMP, TEMP } = process.env;
  if (TMPDIR || TMP || TEMP) return tmpdir();
  return (await isInMemory(system)) && !(await isInMemory(ON_DISK)) ? ON_DISK : system;
}

/** Where temporary files lie, and how many bytes all of them may have. */
export class TemporaryPlace {
  #usedBytes = 0;

  /** Unset: the folder for temporary files, and as much as its disk has. */
  constructor(
    private readonly folder?: string,
    private readonly limitBytes = Number.POSITIVE_INFINITY,
  ) {}

  /** Throws ERR_OPTION where the folder that was asked for can't have temporary files, or is memory. */
  async check(): Promise<void> {
    const { folder } = this;
    if (folder === undefined) return;
    const found = await stat(folder).catch(() => undefined);
    if (!found?.isDirectory()) throw expected('a directory', 'tempDirectory', folder);
    const writable = await access(folder, constants.W_OK | constants.X_OK).then(
      () => true,
      () => false,
    );
    if (!writable) throw expected('a directory that can be written to', 'tempDirectory', folder);
    if (await isInMemory(folder)) throw expected('a directory on a disk', 'tempDirectory', folder, ' Its files are memory.');
  }

  /** A new file. `keep` is told of what is written to it and read of it. */
  async open(keep?: Pick<Keep, 'file'>): Promise<TemporaryFile> {
    return TemporaryFile.open(this.folder ?? (await temporaryFolder()), this, keep);
  }

  /** Counts bytes of a file. Throws ERR_SPILL where they are more than the limit leaves. */
  take(bytes: number): void {
    if (this.#usedBytes + bytes > this.limitBytes) {
      const [more, limit, used] = [bytes, this.limitBytes, this.#usedBytes].map(formatBytes);
      throw new WarpjoinError(
        'ERR_SPILL',
        `${more} more of temporary files do not fit the maxTempDirectorySize of ${limit} (${used} in use).`,
      );
    }
    this.#usedBytes += bytes;
  }

  give(bytes: number): void {
    this.#usedBytes -= bytes;
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }
}

/** Buffers of one writev(2) or readv(2) at most: they take 1,024, but long calls made spilled joins slower. */
const MOST_PARTS = 64;

/** A file that only this process can read. It is written from its begin to its end. */
export class TemporaryFile implements AsyncDisposable {
  #size = 0;

  private constructor(
    private readonly folder: string,
    private readonly file: FileHandle,
    private readonly place: TemporaryPlace,
    private readonly keep: Pick<Keep, 'file'> | undefined,
  ) {}

  /** Throws ERR_SPILL. */
  static async open(folder: string, place: TemporaryPlace, keep?: Pick<Keep, 'file'>): Promise<TemporaryFile> {
    const failed = (error: unknown): never => {
      throw spillError(folder, 'cannot write', error);
    };
    const nameless = await open(folder, NAMELESS, 0o600).catch((error: NodeJS.ErrnoException) => {
      return NO_NAMELESS.has(error.code!) ? null : failed(error);
    });
    return new TemporaryFile(folder, nameless ?? (await unnamed(folder).catch(failed)), place, keep);
  }

  /** Where this process can open the file once more. */
  get path(): string {
    return `/proc/self/fd/${this.file.fd}`;
  }

  get size(): number {
    return this.#size;
  }

  /** Writes all of the parts behind what is there. Throws ERR_SPILL. */
  async append(parts: readonly Uint8Array[]): Promise<void> {
    const bytes = bytesIn(parts);
    this.place.take(bytes);
    const began = performance.now();
    let at = this.#size;
    this.#size += bytes;
    let left = parts.filter(({ byteLength }) => byteLength > 0);
    try {
      while (left.length > 0) {
        const { bytesWritten } = await this.file.writev(left.slice(0, MOST_PARTS), at);
        at += bytesWritten;
        left = behind(left, bytesWritten);
      }
    } catch (error) {
      throw spillError(this.folder, 'cannot write', error);
    }
    this.#tell('write', began, bytes);
  }

  /** Fills the parts, one after the other, with what is there from `position` on. Throws ERR_SPILL. */
  async read(parts: readonly Uint8Array[], position: number): Promise<void> {
    const began = performance.now();
    let at = position;
    for (let left = parts; left.length > 0; ) {
      const { bytesRead } = await this.file.readv(left.slice(0, MOST_PARTS), at).catch((error: unknown) => {
        throw spillError(this.folder, 'cannot read', error);
      });
      if (bytesRead === 0) throw new WarpjoinError('ERR_SPILL', `${this.folder}: a temporary file ends before its end.`);
      at += bytesRead;
      left = behind(left, bytesRead);
    }
    this.#tell('read', began, at - position);
  }

  #tell(name: FileAccess['name'], began: number, bytes: number): void {
    this.keep?.file({ name, began, ended: performance.now(), bytes });
  }

  /**
   * What is there as memory, up to each of the ends. The file is closed, and counts until nobody holds any of the buffers. Throws
   * ERR_SPILL.
   */
  async map({ mapFile }: Pick<NativeAddon, 'mapFile'>, ends: readonly number[]): Promise<ArrayBuffer[]> {
    let buffers: ArrayBuffer[];
    try {
      buffers = mapFile(this.file.fd, ends);
    } catch (error) {
      const reason = error instanceof Error ? error.message : error;
      throw new WarpjoinError('ERR_SPILL', `${this.folder}: cannot map a temporary file: ${reason}.`, { cause: error });
    }
    const { place } = this;
    const bytes = this.#size;
    let held = buffers.length;
    const forget = () => {
      if (--held === 0) place.give(bytes);
    };
    for (const buffer of buffers) mapped.register(buffer, forget);
    this.#size = 0;
    await this[Symbol.asyncDispose]();
    return buffers;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.place.give(this.#size);
    this.#size = 0;
    await this.file.close();
  }
}

/** Told of buffers of mapped files that nobody holds any more. */
const mapped = new FinalizationRegistry<() => void>((forget) => forget());

/** A file whose name is gone again. */
async function unnamed(folder: string): Promise<FileHandle> {
  const name = join(folder, `warpjoin-${randomUUID()}`);
  const file = await open(name, 'wx+', 0o600);
  try {
    await unlink(name);
    return file;
  } catch (error) {
    await file.close();
    throw error;
  }
}

export const bytesIn = (parts: readonly Uint8Array[]): number => parts.reduce((bytes, { byteLength }) => bytes + byteLength, 0);

/** What is left of parts once so many bytes of them are written, or read. */
function behind(parts: readonly Uint8Array[], bytes: number): Uint8Array[] {
  let first = 0;
  let within = bytes;
  while (first < parts.length && within >= parts[first]!.byteLength) within -= parts[first++]!.byteLength;
  const left = parts.slice(first);
  if (within > 0) left[0] = left[0]!.subarray(within);
  return left;
}

const spillError = (folder: string, what: string, cause: unknown): WarpjoinError =>
  new WarpjoinError('ERR_SPILL', `${folder}: ${what} a temporary file: ${systemReason(cause)}.`, { cause });
