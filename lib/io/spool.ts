/** Bytes that come in order, as a file that can be read at any place. */
import { WarpjoinError } from '../errors.js';
import { fileError } from './file-errors.js';
import type { ByteSource } from './source.js';
import { type TemporaryFile, TemporaryPlace } from './temporary.js';

export interface Spooled extends AsyncDisposable {
  /** Where this process reads the file, which has no name in any folder. */
  readonly path: string;
  /** An error about the file, as one about the source. */
  renamed(error: unknown): unknown;
}

/**
 * Writes what is in a source to a file in the folder for temporary files. It loses its name at once, and so it is gone with the
 * process, however that ends; disposing gives its room back before. Throws ERR_FILE.
 */
export async function spooled(source: ByteSource): Promise<Spooled> {
  let file: TemporaryFile | undefined;
  try {
    file = await new TemporaryPlace().open();
    for await (const bytes of source.bytes()) await file.append([bytes]);
  } catch (error) {
    await file?.[Symbol.asyncDispose]();
    throw error;
  }
  const { path } = file;
  const renamed = (error: unknown) =>
    error instanceof WarpjoinError && error.message.startsWith(`${path}:`)
      ? fileError(source.name, error.message.slice(path.length + 2), error)
      : error;
  return { path, renamed, [Symbol.asyncDispose]: () => file[Symbol.asyncDispose]() };
}
