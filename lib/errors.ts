import { types } from 'node:util';

/** What each code means: the API reference has this table. */
export const errorCodes = {
  ERR_COLUMN_NOT_FOUND: 'A table has no column of the name that an option gives.',
  ERR_KEY_TYPE:
    'A column has a type that the call has no order or equality for, or two key columns do not compare with each other.',
  ERR_DUPLICATE_KEY:
    'Two rows of a table share a key that `validate` says is unique: the message names the option, the table, the key, and both row numbers ' +
    'but where the rows came through temporary files.',
  ERR_OPTION: 'An option or an argument is not right.',
  ERR_INVALID_TABLE: 'An input is no table, is damaged, or has changed during the call.',
  ERR_MEMORY_LIMIT:
    'Memory is short: a limit (`memoryLimit`, `deviceMemoryLimit`, `maxOutputRows`) does not hold the call, or the host or a GPU has ' +
    'less free. No other plan fits, either.',
  ERR_SPILL: 'A file of the temporary directory cannot be read or written.',
  ERR_DEVICE:
    'There is no GPU that can be used: the message says why and what would help, as diagnose() does. Or a GPU has failed: the message ' +
    "names it, the runtime's call and its error. The call ends at once, and no other " +
    'plan is tried. A process cannot use GPUs any more where one has failed: restart it, or make engines with device `cpu`. Also: the ' +
    "system gives no thread to the engine or to a device's stream.",
  ERR_NATIVE_MISSING: 'The addon cannot be loaded.',
  ERR_NOT_SUPPORTED: 'warpjoin cannot do this yet.',
  ERR_FILE: 'A file cannot be read or written, or is not what its format says.',
  ERR_INTERNAL: 'A bug of warpjoin.',
} as const satisfies Readonly<Record<string, string>>;

/** The codes that a WarpjoinError can carry. They are stable; messages are not. */
export type ErrorCode = keyof typeof errorCodes;

/** What a thrown value says, in one line: a caller's code may throw anything. */
export function messageOf(thrown: unknown): string {
  try {
    const { message = thrown } = (thrown ?? {}) as { message?: unknown };
    return String(message).split('\n', 1)[0]!;
  } catch {
    return 'something that has no text';
  }
}

/**
 * What `read` gives, which reads what a caller gave: getters and proxies may throw. Then it is the error of this code that begins
 * with `problem`; a WarpjoinError passes as it is.
 */
export function readingFor<T>(code: ErrorCode, problem: string, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    throw errorFor(code, problem, cause);
  }
}

/** What is thrown in place of what a caller's code threw: see readingFor. */
export const errorFor = (code: ErrorCode, problem: string, cause: unknown): WarpjoinError =>
  !types.isProxy(cause) && cause instanceof WarpjoinError
    ? cause
    : new WarpjoinError(code, `${problem}: ${messageOf(cause)}`, { cause });

/** Every error that warpjoin itself raises. The message names the column, option, device or limit and what would do. */
export class WarpjoinError extends Error {
  override readonly name = 'WarpjoinError';
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** Whether a call failed for want of memory: of the host or of a device. */
export const isMemoryLimit = (error: unknown): boolean => error instanceof WarpjoinError && error.code === 'ERR_MEMORY_LIMIT';
