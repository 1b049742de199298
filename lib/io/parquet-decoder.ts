/** parquet-wasm in worker threads: each decodes row groups of its own, with a memory of its own. */
import { readFile } from 'node:fs/promises';
import { pathToFileURL } from 'node:url';
import { Worker } from 'node:worker_threads';
import { WarpjoinError } from '../errors.js';
import { pathOf } from '../packages.js';

/** What a file says of itself. */
export interface ParquetSummary {
  /** Rows of each row group. */
  groups: number[];
  rows: number;
  /** The schema as an Arrow IPC stream. */
  schema: Uint8Array;
}

/** What to read: row groups, or the first rows of them. */
export interface GroupRequest {
  groups: number[];
  rows: number;
  columns: readonly string[] | undefined;
}

const rowsPerBatch = 1 << 20;

// Plain JavaScript, given as text: a file of its own would be lost in bundles.
const program = `
const { parentPort, workerData } = require('node:worker_threads');
const { openAsBlob } = require('node:fs');
(async () => {
  const { initSync, ParquetFile } = await import(workerData.library);
  initSync({ module: workerData.module });
  const file = await ParquetFile.fromFile(await openAsBlob(workerData.path));
  const metadata = file.metadata();
  const groups = Array.from({ length: metadata.numRowGroups() }, (_, group) => metadata.rowGroup(group).numRows());
  const answer = (message) => parentPort.postMessage(message, message.streams?.map(({ buffer }) => buffer));
  answer({ groups, rows: metadata.fileMetadata().numRows(), schema: file.schema().intoIPCStream() });
  let reading = Promise.resolve();
  parentPort.on('message', ({ groups, rows, columns }) => {
    reading = reading.then(async () => {
      const options = { rowGroups: groups, batchSize: ${rowsPerBatch}, concurrency: 1, limit: rows, columns };
      const streams = [];
      for await (const batch of await file.stream(options)) streams.push(batch.intoIPCStream());
      answer({ streams });
    });
  });
})();
`;

// The types of Node.js alone have no WebAssembly. What it compiles goes to workers as it is.
type Compile = (bytes: Uint8Array) => Promise<object>;
const { compile } = (globalThis as unknown as { WebAssembly: { compile: Compile } }).WebAssembly;
let compiling: Promise<object> | undefined;

function resolved(name: string): string {
  const path = pathOf(name);
  if (path === undefined)
    throw new WarpjoinError(
      'ERR_NATIVE_MISSING',
      `This file needs ${name}, which was not found: install parquet-wasm beside warpjoin`,
    );
  return path;
}

/** 5 MB of WebAssembly, compiled once a process: by the first Parquet file. */
function compiled(): Promise<object> {
  compiling ??= readFile(resolved('parquet-wasm/esm/parquet_wasm_bg.wasm')).then(compile);
  return compiling;
}

/** The library for this thread. */
export async function parquetLibrary(): Promise<typeof import('parquet-wasm/esm')> {
  const library = await import('parquet-wasm/esm');
  library.initSync({ module: (await compiled()) as never });
  return library;
}

/** One file in one worker, which answers requests in their order. Whatever goes wrong rejects all promises: the worker has ended. */
export class ParquetDecoder {
  private readonly waiting: { resolve: (message: never) => void; reject: (error: unknown) => void }[] = [];
  private failure: unknown;
  readonly summary: Promise<ParquetSummary>;

  private constructor(private readonly worker: Worker) {
    this.summary = this.next();
    worker.on('message', (message) => this.waiting.shift()?.resolve(message as never));
    worker.on('error', (error) =>
      this.fail(error?.message === 'unreachable' ? new Error('the decoder gave up', { cause: error }) : error),
    );
    worker.on('exit', () => this.fail(new Error('the decoder has ended')));
  }

  static async open(path: string): Promise<ParquetDecoder> {
    const library = pathToFileURL(resolved('parquet-wasm/esm')).href;
    const workerData = { path, library, module: await compiled() };
    // What the library prints when it gives up is no business of the process.
    return new ParquetDecoder(new Worker(program, { eval: true, workerData, execArgv: [], stderr: true, stdout: true }));
  }

  /** Arrow IPC streams of the rows. */
  read(request: GroupRequest): Promise<Uint8Array[]> {
    const answer = this.next<{ streams: Uint8Array[] }, Uint8Array[]>(({ streams }) => streams);
    this.worker.postMessage(request);
    return answer;
  }

  async close(): Promise<void> {
    await this.worker.terminate();
  }

  private next<T, Result = T>(take = (message: T) => message as unknown as Result): Promise<Result> {
    const answer = new Promise<Result>((resolve, reject) => {
      if (this.failure) reject(this.failure);
      else this.waiting.push({ resolve: (message: never) => resolve(take(message)), reject });
    });
    answer.catch(() => {}); // who waits for it may have gone
    return answer;
  }

  private fail(error: unknown): void {
    this.failure ??= error;
    for (const { reject } of this.waiting.splice(0)) reject(this.failure);
  }
}
