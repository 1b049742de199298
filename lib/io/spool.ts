/** Bytes that come in order, as a file that can be read at any place. */
import { randomUUID } from 'node:crypto';
import { open, statfs, unlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { WarpjoinError } from '../errors.js';
import { asWriteError, fileError } from './files.js';
import type { ByteSource } from './source.js';

export interface Spooled extends AsyncDisposable {
  /** Where this process reads the file, which has no name in any folder. */
  readonly path: string;
  /** An error about the file, as one about the source. */
  renamed(error: unknown): unknown;
}

/** File systems whose files are memory, by the number that statfs() gives them: tmpfs and ramfs. */
const IN_MEMORY = new Set([0x01021994, 0x858458f6]);
const ON_DISK = '/var/tmp';

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

/**
 * Writes what is in a source to a file in the folder for temporary files. It loses its name at once, and so it is gone with the
 * process, however that ends; disposing gives its room back before. Throws ERR_FILE.
 */
export async function spooled(source: ByteSource): Promise<Spooled> {
  const folder = await temporaryFolder();
  const writing = (error: unknown): never => {
    throw asWriteError(folder, error);
  };
  const name = join(folder, `warpjoin-${randomUUID()}`);
  const file = await open(name, 'wx+', 0o600).catch(writing);
  try {
    await unlink(name).catch(writing);
    for await (const bytes of source.bytes()) await file.writeFile(bytes).catch(writing);
  } catch (error) {
    await file.close();
    throw error;
  }
  const path = `/proc/self/fd/${file.fd}`;
  const renamed = (error: unknown) =>
    error instanceof WarpjoinError && error.message.startsWith(`${path}:`)
      ? fileError(source.name, error.message.slice(path.length + 2), error)
      : error;
  return { path, renamed, [Symbol.asyncDispose]: () => file.close() };
}
