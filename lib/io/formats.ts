/** Formats of files: by name, and by the first bytes of what has no name. */
import { WarpjoinError } from '../errors.js';
import { quote } from '../suggest.js';

export const FORMATS = ['arrow', 'parquet', 'csv', 'tsv', 'ndjson', 'json'] as const;
export type Format = (typeof FORMATS)[number];
export type Compression = 'gz' | 'zst';

/** The path that means standard input or standard output. */
export const STANDARD = '-';

const endings: Readonly<Record<string, Format>> = {
  '.arrow': 'arrow',
  '.arrows': 'arrow',
  '.feather': 'arrow',
  '.ipc': 'arrow',
  '.parquet': 'parquet',
  '.pq': 'parquet',
  '.csv': 'csv',
  '.tsv': 'tsv',
  '.ndjson': 'ndjson',
  '.jsonl': 'ndjson',
  '.json': 'json',
};
const compressions: Readonly<Record<string, Compression>> = { '.gz': 'gz', '.zst': 'zst' };

/** Endings of file names that have a format, for messages. */
export const ENDINGS = `${Object.keys(endings).join(', ')}, with or without ${Object.keys(compressions).join(' or ')}`;

/** What stands behind the last dot of the last part of a path, with the dot, in lower case. */
export const endingOf = (path: string): string => (/[^/](\.[^./]+)$/.exec(path)?.[1] ?? '').toLowerCase();

/** The compression that a name states, and the name without it. */
export function compressionOf(path: string): { compression: Compression | undefined; inner: string } {
  const ending = endingOf(path);
  const compression = compressions[ending];
  return { compression, inner: compression ? path.slice(0, -ending.length) : path };
}

/** The format that a name states, if any. */
export const namedFormat = (path: string): Format | undefined => endings[endingOf(compressionOf(path).inner)];

/** The format of a file that is to be written. Throws ERR_FILE where neither the name nor `given` states it. */
export function outputFormat(path: string, given?: Format): Format {
  const format = given ?? (path === STANDARD ? undefined : namedFormat(path));
  if (format) return format;
  if (path === STANDARD) throw new WarpjoinError('ERR_FILE', `standard output: say its format: ${FORMATS.map(quote).join(', ')}`);
  throw new WarpjoinError('ERR_FILE', `${path}: expected a file name that ends in ${ENDINGS}, or the format of the file`);
}

/** How many bytes `sniff` looks at, at most. */
export const SNIFFED_BYTES = 6;

const starts: readonly (readonly [Format | Compression, readonly number[]])[] = [
  ['arrow', [...Buffer.from('ARROW1')]],
  ['arrow', [0xff, 0xff, 0xff, 0xff]], // a message of an IPC stream
  ['parquet', [...Buffer.from('PAR1')]],
  ['gz', [0x1f, 0x8b]],
  ['zst', [0x28, 0xb5, 0x2f, 0xfd]],
];

/** What bytes are by how they start, where that says it. Text formats have no such start. */
export const sniff = (head: Uint8Array): Format | Compression | undefined =>
  starts.find(([, start]) => start.every((byte, index) => head[index] === byte))?.[0];

/** ERR_FILE for an input whose format nothing states. */
export class UnknownFormat extends WarpjoinError {
  /** `isNamed`: whether it has a name that could have stated the format. */
  constructor(
    readonly input: string,
    isNamed: boolean,
  ) {
    const why = isNamed ? `its name does not end in ${ENDINGS}` : 'its first bytes are neither Arrow nor Parquet';
    super('ERR_FILE', `${input}: ${why}. Say its format: ${FORMATS.map(quote).join(', ')}`);
  }
}
