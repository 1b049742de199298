/** The codes that a WarpjoinError can carry. They are stable; messages are not. */
export type ErrorCode =
  | 'ERR_COLUMN_NOT_FOUND'
  | 'ERR_KEY_TYPE'
  | 'ERR_OPTION'
  | 'ERR_INVALID_TABLE'
  | 'ERR_MEMORY_LIMIT'
  | 'ERR_SPILL'
  | 'ERR_DEVICE'
  | 'ERR_NATIVE_MISSING'
  | 'ERR_NOT_SUPPORTED'
  | 'ERR_FILE'
  | 'ERR_INTERNAL';

/** Every error that warpjoin itself raises. The message names the column, option, device or limit and what would do. */
export class WarpjoinError extends Error {
  override readonly name = 'WarpjoinError';
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}
