/** Errors of files: one line, which names the file and what is wrong. */
import { WarpjoinError } from '../errors.js';

export const systemReasons: Record<string, string> = {
  ENOENT: 'no such file or directory',
  EACCES: 'permission denied',
  EISDIR: 'is a directory',
  ENOTDIR: 'a part of the path is not a directory',
  ELOOP: 'too many symbolic links',
  ENOSPC: 'no space left on the device',
  EROFS: 'the file system is read-only',
};

/** ERR_FILE in one line: the file (and line), then what is wrong. */
export function fileError(path: string, what: string, cause?: unknown, line?: number): WarpjoinError {
  return new WarpjoinError('ERR_FILE', `${path}${line === undefined ? '' : `:${line}`}: ${what}`, { cause });
}

/** What went wrong, in one line: the system's reason in words where there is one. */
export function systemReason(error: unknown): string {
  const code = (error as NodeJS.ErrnoException)?.code;
  return (code && systemReasons[code]) ?? String((error as Error)?.message ?? error).split('\n', 1)[0]!;
}

/** Turns whatever a library or the system threw into ERR_FILE; aborts and our own errors pass as they are. */
export function asFileError(path: string, format: string, error: unknown, signal?: AbortSignal): unknown {
  if (error instanceof WarpjoinError || (signal?.aborted && error === signal.reason)) return error;
  const code = (error as NodeJS.ErrnoException)?.code;
  if (code && systemReasons[code]) return fileError(path, systemReasons[code], error);
  const message = String((error as Error)?.message ?? error).split('\n', 1)[0];
  return fileError(path, `not a readable ${format} file, or a damaged one (${message})`, error);
}

/** The same for a file that is being written. */
export function asWriteError(path: string, error: unknown): unknown {
  if (error instanceof WarpjoinError) return error;
  return fileError(path, `cannot write: ${systemReason(error)}`, error);
}
