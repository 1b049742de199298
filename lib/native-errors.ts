/** Errors of the addon, as users see them. */
import { type ErrorCode, WarpjoinError } from './errors.js';

/** Codes of the addon that users see as ERR_MEMORY_LIMIT: host memory is not what is short. */
const DEVICE_SHORTAGE = 'ERR_DEVICE_MEMORY';
const OUTPUT_ROWS = 'ERR_OUTPUT_ROWS';
const CODES: ReadonlySet<string> = new Set<ErrorCode>([
  'ERR_COLUMN_NOT_FOUND',
  'ERR_KEY_TYPE',
  'ERR_OPTION',
  'ERR_INVALID_TABLE',
  'ERR_MEMORY_LIMIT',
  'ERR_SPILL',
  'ERR_DEVICE',
  'ERR_NOT_SUPPORTED',
]);

const codeOf = (error: unknown) => (error as { code?: unknown } | undefined)?.code;

/**
 * Whether an error of the addon says that a device is short of memory. That alone is planned anew: the addon has another code for
 * what a device fails by.
 */
export function isDeviceShortage(error: unknown): boolean {
  return codeOf(error) === DEVICE_SHORTAGE;
}

/** An error of the data plane as users see it, with the stack of the call. */
export function translate(error: unknown): unknown {
  if (error instanceof WarpjoinError) return error;
  const { code, message } = error as { code?: unknown; message?: string };
  if (code === DEVICE_SHORTAGE || code === OUTPUT_ROWS)
    return new WarpjoinError('ERR_MEMORY_LIMIT', message ?? code, { cause: error });
  if (typeof code === 'string' && CODES.has(code)) return new WarpjoinError(code as ErrorCode, message ?? code, { cause: error });
  return new WarpjoinError('ERR_INTERNAL', `Unexpected failure: ${message ?? error}`, { cause: error });
}

/** Whether an error of the addon says that a result has more rows than it may have. */
export const isRowLimit = (error: unknown): boolean => codeOf(error) === OUTPUT_ROWS;

/** What a synchronous call of the addon gives; its error as users see it. */
export function translated<T>(ask: () => T): T {
  try {
    return ask();
  } catch (error) {
    throw translate(error);
  }
}

/** The error for a result of more rows than `maxOutputRows`. */
export function tooManyRows(message: string): unknown {
  return translate(Object.assign(new Error(message), { code: OUTPUT_ROWS }));
}
