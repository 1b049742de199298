const UNITS: Readonly<Record<string, number>> = {
  b: 1,
  kb: 1e3,
  mb: 1e6,
  gb: 1e9,
  tb: 1e12,
  kib: 2 ** 10,
  mib: 2 ** 20,
  gib: 2 ** 30,
  tib: 2 ** 40,
};

/** A size as a number of bytes, or as a share of something that is known later. */
export type Size = { bytes: number } | { share: number };

/** What parseSize accepts, for messages. */
export const SIZE = `a size: a positive number of bytes, or a string like '64GiB', '500 MB' or '80%'`;

/** Reads a size; undefined for anything that is not one (zero, negative, more than 100 %, past 2^53 bytes, unknown units). */
export function parseSize(value: unknown): Size | undefined {
  if (typeof value === 'number') return wholeBytes(value);
  if (typeof value !== 'string') return undefined;
  const match = /^\s*(\d+(?:\.\d+)?)\s*(%|[a-z]+)\s*$/i.exec(value);
  if (!match) return undefined;
  const number = Number(match[1]);
  const unit = match[2]!.toLowerCase();
  if (unit === '%') return number > 0 && number <= 100 ? { share: number / 100 } : undefined;
  const scale = UNITS[unit];
  return scale === undefined ? undefined : wholeBytes(Math.floor(number * scale));
}

/** The bytes of a size that is no percentage; undefined for anything else. */
export function parseBytes(value: unknown): number | undefined {
  const size = parseSize(value);
  return size && 'bytes' in size ? size.bytes : undefined;
}

function wholeBytes(bytes: number): Size | undefined {
  return Number.isSafeInteger(bytes) && bytes > 0 ? { bytes } : undefined;
}

/** Bytes of a size; `whole` is what a percentage is of. */
export function resolveSize(size: Size, whole: number): number {
  return 'bytes' in size ? size.bytes : Math.max(1, Math.floor(whole * size.share));
}

/** "1.5 GiB", "640 MiB", "12 bytes". */
export function formatBytes(bytes: number): string {
  if (bytes < 1024) return `${Math.round(bytes)} bytes`;
  const units = ['KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let value = bytes / 1024;
  let unit = 0;
  while (value >= 1023.95 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${Number(value.toFixed(1))} ${units[unit]}`;
}
