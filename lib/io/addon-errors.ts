/** What the addon's readers and writers of files throw. */
import { type ErrorCode, WarpjoinError } from '../errors.js';
import { fileError } from './file-errors.js';

const addonCodes: readonly string[] = ['ERR_OPTION', 'ERR_MEMORY_LIMIT', 'ERR_DEVICE', 'ERR_INTERNAL'] satisfies ErrorCode[];

/** A WarpjoinError of what the addon threw, which names the file; others as they are. */
export function asAddonError(name: string, error: unknown): unknown {
  const { code, message } = (error ?? {}) as { code?: string; message?: string };
  if (error instanceof WarpjoinError || !code) return error;
  if (code === 'ERR_FILE') return fileError(name, String(message), error);
  if (!addonCodes.includes(code)) return error;
  return new WarpjoinError(code as ErrorCode, `${name}: ${message}`, { cause: error });
}
