/** Bytes that come in order, as a file that can be read at any place. */
import { mkdtemp, open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { WarpjoinError } from '../errors.js';
import { asWriteError, fileError } from './files.js';
import type { ByteSource } from './source.js';

export interface Spooled extends AsyncDisposable {
  readonly path: string;
  /** An error about the file, as one about the source. */
  renamed(error: unknown): unknown;
}

/** Writes what is in a source to a file in the folder for temporary files; disposing removes it. Throws ERR_FILE. */
export async function spooled(source: ByteSource): Promise<Spooled> {
  const folder = await mkdtemp(join(tmpdir(), 'warpjoin-')).catch((error) => {
    throw asWriteError(tmpdir(), error);
  });
  const path = join(folder, 'data');
  const remove = () => rm(folder, { recursive: true, force: true });
  try {
    const file = await open(path, 'wx');
    try {
      for await (const bytes of source.bytes()) {
        await file.writeFile(bytes).catch((error) => {
          throw asWriteError(path, error);
        });
      }
    } finally {
      await file.close();
    }
  } catch (error) {
    await remove();
    throw error;
  }
  const renamed = (error: unknown) =>
    error instanceof WarpjoinError && error.message.startsWith(`${path}:`)
      ? fileError(source.name, error.message.slice(path.length + 2), error)
      : error;
  return { path, renamed, [Symbol.asyncDispose]: remove };
}
