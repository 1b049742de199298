/** Tables that an engine keeps on its GPUs between calls: loading, eviction, and the way home. */

import { types } from 'node:util';
import type * as arrow from 'apache-arrow';
import { whenRead } from '../columns/batches.js';
import { type ForeignTable, type Input, type InputColumn, isForDevices, readTable, tableOf } from '../columns/input.js';
import { type Library, tableIn } from '../columns/library.js';
import { buildTable, checkTableRows, type FieldShape, schemaOf } from '../columns/result.js';
import { WarpjoinError } from '../errors.js';
import type { ResidentHandle } from '../native.js';
import { loadSchema } from '../options.js';
import { parse } from '../schema.js';
import { formatBytes } from '../sizes.js';
import { type Call, type EngineCore, runCall } from './call.js';
import { collectGarbage } from './reclaim.js';

/** What a LoadedTable stands for. */
export interface Contents {
  readonly rows: number;
  /** Without chunks while they are on the devices alone. */
  readonly columns: readonly InputColumn[];
  readonly metadata: Map<string, string> | undefined;
  /** Whose classes it is made of. */
  readonly library: Library;
  /** In host memory; null for a result that is on the devices alone. */
  host: ForeignTable | null;
  /** On the devices; null where they are host devices, and where the table was evicted. */
  resident: Resident | null;
  disposed: boolean;
}

/** Columns on the devices. */
export interface Resident {
  handle: ResidentHandle;
  /** Position of a column of the table among those on the devices. */
  position: ReadonlyMap<number, number>;
}

/** Frees tables that were never disposed, once nobody holds them. */
const unheld = new FinalizationRegistry<{ tables: Tables; contents: Contents }>(({ tables, contents }) =>
  tables.abandon(contents),
);

/**
 * A table that an engine keeps on its GPUs, to be given to its calls in place of an Arrow table: made by Engine.load(), and
 * by joins and sorts whose result stays there. On the processor it is the Arrow table.
 */
// biome-ignore lint/suspicious/noExplicitAny: tables of all column types
export class LoadedTable<Columns extends arrow.TypeMap = any> implements AsyncDisposable {
  readonly numRows: number;
  readonly schema: arrow.Schema<Columns>;
  /** @internal */
  readonly core: EngineCore;
  /** @internal */
  readonly contents: Contents;

  /** @internal Engine.load() is the public way. */
  constructor(core: EngineCore, contents: Contents) {
    const { host, rows, columns } = contents;
    this.core = core;
    this.contents = contents;
    unheld.register(this, { tables: core.tables, contents });
    this.numRows = rows;
    this.schema = (host ? host.schema : schemaOf(columns.map(fieldOf), contents)) as arrow.Schema<Columns>;
  }

  /** Whether its columns are on the GPUs now: false on the processor, and where they made room for a call. */
  get resident(): boolean {
    return this.contents.resident !== null;
  }

  /** The table in host memory: the one that was loaded; or a result, which comes home at the first call, and is kept. */
  async toArrow(): Promise<arrow.Table<Columns>> {
    const { core, contents } = this;
    checkInUse(contents, 'toArrow()');
    // The call refers to this table, or it might be collected while it waits.
    if (!contents.host)
      await runCall(core, { signal: undefined, onProgress: undefined, trace: undefined }, (call) =>
        call.tables.bringHome(call, this.contents),
      );
    // Record batches were given without a table around them.
    const table = tableIn(contents.library, contents.host!);
    contents.host = table as unknown as ForeignTable;
    return table as arrow.Table<Columns>;
  }

  /**
   * Waits for the calls made so far, then frees the memory. Calls with it made later reject. A table that is never disposed is
   * freed when it is garbage collected, sooner or later: V8 knows nothing of the GPUs' memory.
   */
  async dispose(): Promise<void> {
    const { core, contents } = this;
    contents.disposed = true;
    await core.after(async () => core.tables.release(contents));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose();
  }
}

function checkInUse({ disposed }: Contents, argument: string): void {
  if (disposed)
    throw new WarpjoinError(
      'ERR_INVALID_TABLE',
      `Expected a loaded table in use for ${argument} but received one that was disposed.`,
    );
}

/** A table argument of a call on this engine: a table, or one that the engine has loaded. */
export function readInput(core: EngineCore, value: unknown, argument: string): Input {
  // A proxy has no class to ask for, and may throw.
  if (types.isProxy(value) || !(value instanceof LoadedTable)) return readTable(value, argument, core.leastIndexBytes);
  const { contents } = value;
  if (value.core !== core) {
    throw new WarpjoinError(
      'ERR_INVALID_TABLE',
      `Expected a table that this engine has loaded for the ${argument} table but received one of another engine. Load it there, or give what toArrow() gives.`,
    );
  }
  checkInUse(contents, `the ${argument} table`);
  const { rows, columns, metadata, library } = contents;
  return { argument, rows, columns, metadata, library, loaded: contents, holds: value };
}

/** Of a column of a result: its type is one of the result's apache-arrow. */
const fieldOf = (column: InputColumn): FieldShape => ({
  name: column.name,
  type: column.info!.type as arrow.DataType,
  nullable: column.nullable,
  metadata: column.metadata,
  of: column,
});

export async function loadTable(core: EngineCore, table: unknown, options: unknown): Promise<LoadedTable> {
  const running = parse(loadSchema, 'load', options);
  return whenRead({ loaded: table }, running.signal, async ({ loaded }) => {
    const contents = inHostMemory(tableOf(loaded, 'loaded'));
    return runCall(core, running, async (call) => {
      await core.tables.load(call, contents, true);
      return new LoadedTable(core, contents);
    });
  });
}

/** A result in host memory as a loaded table: on the devices, too, where they have room for it. */
export async function loadResult(call: Call, core: EngineCore, table: arrow.Table): Promise<LoadedTable> {
  const contents = inHostMemory(table as unknown as ForeignTable);
  await core.tables.load(call, contents, false);
  return new LoadedTable(core, contents);
}

function inHostMemory(host: ForeignTable): Contents {
  const { rows, columns, metadata, library } = readTable(host, 'loaded');
  return { rows, columns, metadata, library, host, resident: null, disposed: false };
}

/** The loaded tables of one engine. Its calls run one at a time. */
export class Tables {
  /** Those with columns on the devices, the longest unused first. */
  readonly #resident = new Set<Contents>();
  /** Those that the running call reads where they lie, and those that it has put there. */
  readonly #inUse = new Set<Contents>();
  readonly #added = new Set<Contents>();
  /** Those that the running call reads, and nobody else holds any more. */
  readonly #abandoned = new Set<Contents>();
  /** Whether the running call has had garbage collected. */
  #hasCollected = false;

  /** Marks a table as read by the running call where it lies: the call evicts others. */
  use(contents: Contents): void {
    this.#inUse.add(contents);
    if (this.#resident.delete(contents)) this.#resident.add(contents);
  }

  /** A table is on the devices now; it goes if the call fails after all. */
  add(contents: Contents, resident: Resident): void {
    contents.resident = resident;
    this.#resident.add(contents);
    this.#added.add(contents);
  }

  endCall(succeeded: boolean): void {
    if (!succeeded) for (const contents of this.#added) this.release(contents);
    for (const contents of this.#abandoned) this.release(contents);
    this.#inUse.clear();
    this.#added.clear();
    this.#abandoned.clear();
    this.#hasCollected = false;
  }

  /** Frees a table's device memory. */
  release(contents: Contents): void {
    contents.resident?.handle.release();
    contents.resident = null;
    this.#resident.delete(contents);
  }

  /** Frees the device memory of a table that no call will be given again: with the end of the call that reads it, if any. */
  abandon(contents: Contents): void {
    if (this.#inUse.has(contents)) this.#abandoned.add(contents);
    else this.release(contents);
  }

  /** Frees the device memory of all tables, for the engine ends. */
  close(): void {
    for (const contents of this.#resident) this.release(contents);
  }

  /**
   * Checks a table's buffers, and copies what GPUs can use of it to them: booleans, and values of 1, 2, 4, 8 or 16 bytes. Where
   * their memory limit has no room, others are evicted for it, if `evict`; else it stays in host memory. Throws
   * ERR_MEMORY_LIMIT where there is no room even so.
   */
  async load(call: Call, contents: Contents, evict: boolean): Promise<void> {
    const { native, job } = call;
    const input: Input = { ...contents, argument: 'loaded' };
    const supported = [...contents.columns.keys()].filter((column) => contents.columns[column]!.info !== null);
    const relation = await call.relation('check buffers', input, supported);
    const devices = call.resources.devices;
    const columns = supported.filter((column) => isForDevices(input, column));
    if (columns.length > 0 && devices.every(({ kind }) => kind === 'gpu')) {
      const [positions, ordinals] = [columns.map((column) => supported.indexOf(column)), devices.map(({ ordinal }) => ordinal)];
      const bytes = native.residentBytes(relation, positions, ordinals);
      const fits = (): boolean => call.resources.devices.every(({ limitBytes }) => limitBytes >= bytes);
      while (!fits()) if (!evict || !(await this.makeRoom(call))) break;
      if (fits()) {
        const handle = await call.step('load', () => native.loadTable(job, relation, positions, ordinals));
        this.add(contents, { handle, position: new Map(columns.map((column, position) => [column, position])) });
      } else if (evict) {
        const limit = Math.min(...call.resources.devices.map(({ limitBytes }) => limitBytes));
        throw new WarpjoinError(
          'ERR_MEMORY_LIMIT',
          `The loaded table takes ${formatBytes(bytes)} on each device but deviceMemoryLimit leaves ${formatBytes(limit)} for it.`,
        );
      }
    }
    call.free(relation);
  }

  /**
   * Evicts what was not used for the longest time, of the tables that the running call does not read where they lie: false where
   * there is none. Before a result comes home for that, those that nobody holds any more are collected.
   */
  async makeRoom(call: Call): Promise<boolean> {
    for (const contents of this.#resident) {
      if (this.#inUse.has(contents)) continue;
      if (!contents.host && !this.#hasCollected) {
        this.#hasCollected = true;
        const tables = this.#resident.size;
        if ((await collectGarbage(() => this.#resident.size)) < tables) return true;
      }
      await this.bringHome(call, contents);
      this.release(contents);
      return true;
    }
    return false;
  }

  /** Brings a result that is on the devices alone to host memory, too. */
  async bringHome(call: Call, contents: Contents): Promise<void> {
    if (contents.host) return;
    const { columns, rows, resident } = contents;
    checkTableRows(rows, 'Use it in calls whose result stays on the GPUs (resident: true), or in joinCount.');
    const made = await call.step('bring home', () => call.native.bringHome(call.job, resident!.handle, [...columns.keys()]));
    const table = buildTable(columns.map(fieldOf), made, rows, contents);
    for (const [index, { chunks, dictionary }] of readTable(table, 'loaded').columns.entries())
      Object.assign(columns[index]!, { chunks, dictionary });
    contents.host = table as unknown as ForeignTable;
  }
}
