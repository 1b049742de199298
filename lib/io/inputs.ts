/** What an input is: its format, and how its bytes are read. */
import { fileError } from './file-errors.js';
import { compressionOf, type Format, namedFormat, STANDARD, sniff, UnknownFormat } from './formats.js';
import { expandInput } from './globs.js';
import { type ByteSource, peek } from './source.js';
import { fileSource, openSource, statInput } from './sources.js';

/** An input that is about to be read. */
export interface OpenInput {
  /** What messages call it. */
  readonly name: string;
  readonly format: Format;
  /** The path of a plain file, which can be read at any place. */
  readonly path: string | undefined;
  readonly source: ByteSource;
}

/** The files that inputs name, in order. Throws ERR_FILE, and for standard input that is named twice. */
export async function expandInputs(inputs: readonly string[]): Promise<string[]> {
  const paths: string[] = [];
  for (const input of inputs) paths.push(...(await expandInput(input)));
  if (paths.filter((path) => path === STANDARD).length > 1)
    throw fileError('standard input', 'it can be read once, and is named twice');
  return paths;
}

/** Throws ERR_FILE for what can't be read, and where nothing states the format. */
export async function openInput(path: string, given: Format | undefined, signal?: AbortSignal): Promise<OpenInput> {
  const stated = given ?? (path === STANDARD ? undefined : namedFormat(path));
  if (path === STANDARD) return fromSource(await openSource(path, signal), stated, false);
  const found = await statInput(path);
  if (compressionOf(path).compression || !found.isFile()) return fromSource(await openSource(path, signal), stated, true);
  const source = fileSource(path, found, signal);
  if (stated) return { name: path, format: stated, path, source };
  const { head, source: opened } = await peek(source);
  await opened.bytes()[Symbol.asyncIterator]().return?.();
  return { name: path, format: formatIn(head, path, true), path, source: fileSource(path, found, signal) };
}

async function fromSource(source: ByteSource, stated: Format | undefined, isNamed: boolean): Promise<OpenInput> {
  const { name } = source;
  if (stated) return { name, format: stated, path: undefined, source };
  const { head, source: rest } = await peek(source);
  return { name, format: formatIn(head, name, isNamed), path: undefined, source: rest };
}

function formatIn(head: Uint8Array, name: string, isNamed: boolean): Format {
  const found = sniff(head);
  if (found === 'arrow' || found === 'parquet') return found;
  throw new UnknownFormat(name, isNamed);
}
