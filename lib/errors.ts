import { types } from 'node:util';

/**
 * The codes that a WarpjoinError can carry. They are stable; messages are not.
 *
 * | code | meaning |
 * | --- | --- |
 * | ERR_COLUMN_NOT_FOUND, ERR_KEY_TYPE, ERR_INVALID_TABLE | an input does not have what the call needs, or is damaged |
 * | ERR_DUPLICATE_KEY | two rows of a table share a key that `validate` says is unique: the message names the option, the table, the key and both row numbers |
 * | ERR_OPTION | an option or an argument is not right |
 * | ERR_MEMORY_LIMIT | memory is short: a limit (`memoryLimit`, `deviceMemoryLimit`, `maxOutputRows`) does not hold the call, or the host or a GPU has less free. No other plan fits, either |
 * | ERR_DEVICE | there is no GPU that can be used: the message says why, and what would help, as diagnose() does. Or a GPU has failed: the message names it, the runtime's call and its error. The call ends at once, and no other plan is tried. The process can't use GPUs any more where one has failed: restart it, or make engines with device 'cpu'. Also: the system gives no thread to the engine or to a device's stream |
 * | ERR_NATIVE_MISSING | the addon can't be loaded |
 * | ERR_NOT_SUPPORTED | warpjoin can't do this yet |
 * | ERR_FILE, ERR_SPILL | a file can't be read or written |
 * | ERR_INTERNAL | a bug of warpjoin's |
 */
export type ErrorCode =
  | 'ERR_COLUMN_NOT_FOUND'
  | 'ERR_KEY_TYPE'
  | 'ERR_DUPLICATE_KEY'
  | 'ERR_OPTION'
  | 'ERR_INVALID_TABLE'
  | 'ERR_MEMORY_LIMIT'
  | 'ERR_SPILL'
  | 'ERR_DEVICE'
  | 'ERR_NATIVE_MISSING'
  | 'ERR_NOT_SUPPORTED'
  | 'ERR_FILE'
  | 'ERR_INTERNAL';

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
    if (!types.isProxy(cause) && cause instanceof WarpjoinError) throw cause;
    throw new WarpjoinError(code, `${problem}: ${messageOf(cause)}`, { cause });
  }
}

/** Every error that warpjoin itself raises. The message names the column, option, device or limit and what would do. */
export class WarpjoinError extends Error {
  override readonly name = 'WarpjoinError';
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}
