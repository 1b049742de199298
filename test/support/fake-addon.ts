/**
 * The addon's surface in plain JavaScript, one row at a time: what the control plane's unit tests run on. It checks that
 * handles are used before they are released and counts those that are not released.
 */
import type {
  DeviceDescription,
  JoinKeysHandle,
  KeyedTables,
  LinkSpeeds,
  NativeAddon,
  NativeColumn,
  NativeEngine,
  NativeEngineConfig,
  NativeJob,
  NativeJoinRequest,
  NativePayload,
  NativeResultColumn,
  RelationHandle,
  ReservationHandle,
  ResidentHandle,
  RowsHandle,
  RunHandle,
  Side,
  SortColumnSpec,
  SortKeysHandle,
  TableJoinKeysHandle,
  TableKeys,
  TableSortKeysHandle,
} from '../../lib/native.js';
import { VERSION } from '../../lib/version.js';

export interface FakeSettings {
  /** Milliseconds that each step takes. */
  stepMilliseconds: number;
  /** What steps wait for, when their time is over; null: for nothing. */
  held: Promise<void> | null;
  /** Whether keys give back what they are made of. */
  decodes: boolean;
  /** Whether keys are the left column's values. */
  keysAreLeftValues: boolean;
  /** The side of a join whose keys are its row numbers. */
  rowsAreKeysOf: Side | null;
  complete: boolean;
  /** Whether join keys carry a payload where no row is excluded. */
  carriesPayload: boolean;
  /** Whether sort keys are in order, and whether a join's sides seem to be and are. */
  sorted: boolean;
  seemsSorted: boolean;
  isSorted: boolean;
  bytesPerTuple: number;
  /** Of the keys that loaded tables are sorted or joined by. */
  keyBits: number;
  /** Fails the step with this name. */
  failing: { step: string; error: Error } | null;
  /** Called at the beginning of each step, with its name. The step waits for a promise that it returns. */
  onStep: (name: string) => unknown;
  /** What memory() says is in use. */
  usedBytes: () => number;
  /** How many rows sort keys and each side of join keys say they have, for plans of more than is there; null: as many as they have. */
  plannedRows: number | null;
  /** How many GPUs the process may use. */
  gpus: number;
  /** What measureLinks finds. */
  links: LinkSpeeds;
}

type Cell = { bytes: Uint8Array; value: number | bigint | string | boolean } | null;
interface Column {
  info: NativeColumn;
  cells: Cell[];
}
class FakeHandle {
  /** Of the last addon made: those of others may go at any time, when they are collected. */
  static live = new Set<FakeHandle>();
  released = false;
  constructor() {
    FakeHandle.live.add(this);
  }
  release(): void {
    FakeHandle.live.delete(this);
    this.released = true;
  }
}
class Relation extends FakeHandle {
  readonly dictionaries = [];
  constructor(
    readonly rows: number,
    readonly columns: Column[],
  ) {
    super();
  }
}
class Resident extends FakeHandle {
  readonly spreadEvenly: boolean;
  readonly nullable: boolean[];
  readonly skew = 1;
  readonly splitRows = 0;
  constructor(
    readonly columns: Column[],
    readonly rows: number,
    readonly bytes: number,
    readonly devices: DeviceDescription[],
    joined = false,
  ) {
    super();
    this.spreadEvenly = !joined;
    this.nullable = columns.map(({ cells }) => cells.includes(null));
    for (const device of devices) device.residentBytes += bytes;
  }
  override release(): void {
    if (!this.released) for (const device of this.devices) device.residentBytes -= this.bytes;
    super.release();
  }
}
class TableSortKeys extends FakeHandle {
  readonly keyBytes = 8;
  readonly mostBits = 64;
  readonly carriesPayload: boolean;
  constructor(
    readonly table: Resident,
    readonly by: SortColumnSpec[],
    payload: number | null,
    readonly bits: number,
    readonly giveColumns: boolean,
  ) {
    super();
    this.carriesPayload = payload !== null && giveColumns;
  }
}
class TableJoinKeys extends FakeHandle {
  readonly mostBits = 64;
  readonly areColumns: boolean;
  readonly giveLeft: boolean[];
  constructor(
    readonly left: TableKeys,
    readonly right: TableKeys,
    readonly nullsEqual: readonly boolean[],
    readonly bits: number,
    decodes: boolean,
  ) {
    super();
    const columns = [left, right].map(({ table, keys }) => use<Resident>(table).columns[keys[0]!]!);
    const { order, width } = columns[0]!.info;
    const isKey = (column: Column): boolean =>
      column.info.order === order && column.info.width === width && !column.cells.includes(null);
    this.areColumns = left.keys.length === 1 && order !== 'floating' && width >= 4 && columns.every(isKey);
    this.giveLeft = left.keys.map(() => this.areColumns || decodes);
  }
}
class SortKeys extends FakeHandle {
  readonly keyBytes = 8;
  readonly valueBytes: 4 | 8;
  readonly carriesPayload: boolean;
  readonly areValues: boolean;
  constructor(
    readonly relation: Relation,
    readonly by: SortColumnSpec[],
    readonly payload: number | null,
    readonly complete: boolean,
    readonly rows: number,
    readonly sorted: boolean,
    allowFlip: boolean,
  ) {
    super();
    const { info, cells } = relation.columns[by[0]!.column]!;
    const integers = info.order === 'signed' || info.order === 'unsigned';
    this.areValues = allowFlip && by.length === 1 && integers && info.width >= 4 && !cells.includes(null);
    this.carriesPayload = payload !== null && complete;
    this.valueBytes = this.carriesPayload ? (relation.columns[payload!]!.info.width as 4 | 8) : 4;
  }
}
class Run extends FakeHandle {
  taken = false;
  constructor(
    readonly order: number[],
    readonly payload: Column | null,
    readonly compare: (a: number, b: number) => number,
    readonly keys: Column | null = null,
  ) {
    super();
  }
  get size(): number {
    return this.order.length;
  }
}
class JoinKeys extends FakeHandle {
  constructor(
    readonly keyBytes: 4 | 8,
    readonly mayCarry: boolean,
    readonly keysAreLeftValues: boolean,
    readonly rowsAreKeysOf: Side | null,
    readonly sides: Record<Side, { relation: Relation; columns: readonly number[]; payload: number | null }>,
    readonly plannedRows: number | null,
    readonly seemsSorted: boolean,
    /** Of each column: whether nulls equal each other. */
    readonly nullsEqual: readonly boolean[],
    /** Whether nulls are tuples, even where they equal nothing. */
    readonly takesNulls = false,
  ) {
    super();
  }
  readonly made = 'value' as const;
  readonly bits = 0;
  get givesLeft(): readonly boolean[] {
    return this.nullsEqual.map(() => this.keysAreLeftValues);
  }
  /** The cells of the key columns, row by row. */
  cells(side: Side): Cell[][] {
    const { relation, columns } = this.sides[side];
    const all = columns.map((column) => relation.columns[column]!.cells);
    return [...Array(relation.rows).keys()].map((row) => all.map((cells) => cells[row]!));
  }
  /** Whether a row can match. */
  isTuple(row: readonly Cell[]): boolean {
    return this.takesNulls || row.every((cell, index) => cell !== null || this.nullsEqual[index]);
  }
  #side(side: Side) {
    const { relation, payload } = this.sides[side];
    const tuples = this.cells(side).filter((row) => this.isTuple(row)).length;
    const carriesPayload = payload !== null && tuples === relation.rows && this.mayCarry;
    const valueBytes = (carriesPayload ? relation.columns[payload]!.info.width : 4) as 4 | 8;
    return {
      rows: this.plannedRows ?? relation.rows,
      tuples: this.plannedRows ?? tuples,
      valueBytes,
      carriesPayload,
      seemsSorted: this.seemsSorted,
    };
  }
  get left() {
    return this.#side('left');
  }
  get right() {
    return this.#side('right');
  }
}
const MISSING = -1;
class Rows extends FakeHandle {
  readonly skew = 1;
  readonly splitRows = 0;
  readonly spilledRows = 0;
  constructor(
    readonly pairs: [number, number][],
    readonly count: number,
    readonly keys: JoinKeys | null,
    readonly request: NativeJoinRequest | null,
    readonly groupEnds: number[] = [],
  ) {
    super();
  }
  get size(): number {
    return this.count;
  }
  get leftMayBeMissing(): boolean {
    return this.request?.kind === 'right' || this.request?.kind === 'full';
  }
  get rightMayBeMissing(): boolean {
    return this.request?.kind === 'left' || this.request?.kind === 'full';
  }
}

function coded(code: string, message: string): Error {
  return Object.assign(new Error(message), { code });
}

function use<T extends FakeHandle>(handle: unknown): T {
  const own = handle as T;
  if (own.released) throw coded('ERR_INTERNAL', 'The handle was released');
  return own;
}

function readColumn(info: NativeColumn, rows: number): Column {
  // Nested columns are payload alone, which only the addon itself makes.
  if (!['boolean', 'fixed', 'utf8', 'large_utf8'].includes(info.kind)) return { info, cells: Array<Cell>(rows).fill(null) };
  const cells: Cell[] = [];
  const bad = (): Error => coded('ERR_INVALID_TABLE', `Column ${info.name}: a buffer is shorter than its length needs`);
  const bytesOf = (view: ArrayBufferView | null): Uint8Array =>
    view ? new Uint8Array(view.buffer, view.byteOffset, view.byteLength) : new Uint8Array(0);
  for (const chunk of info.chunks) {
    const [validity, values, offsets] = [
      chunk.validity && bytesOf(chunk.validity),
      bytesOf(chunk.values),
      bytesOf(chunk.offsets),
    ];
    const bit = (bits: Uint8Array, row: number): boolean => {
      const at = chunk.bitOffset + row;
      if (at >> 3 >= bits.length) throw bad();
      return ((bits[at >> 3]! >> (at & 7)) & 1) === 1;
    };
    for (let row = 0; row < chunk.length; row++) {
      let bytes: Uint8Array;
      if (info.kind === 'boolean') bytes = Uint8Array.of(bit(values, row) ? 1 : 0);
      else if (info.kind === 'fixed') bytes = values.slice(row * info.width, (row + 1) * info.width);
      else {
        const at = new DataView(offsets.buffer, offsets.byteOffset, offsets.byteLength);
        const offset = (index: number): number =>
          info.kind === 'utf8' ? at.getInt32(index * 4, true) : Number(at.getBigInt64(index * 8, true));
        if (offsets.byteLength < (chunk.length + 1) * (info.kind === 'utf8' ? 4 : 8) || offset(row + 1) > values.length)
          throw bad();
        bytes = values.slice(offset(row), offset(row + 1));
      }
      if (info.kind === 'fixed' && bytes.length < info.width) throw bad();
      cells.push(validity && !bit(validity, row) ? null : { bytes, value: cellValue(info, bytes) });
    }
  }
  if (cells.length !== rows) throw bad();
  return { info, cells };
}

function cellValue({ kind, order, width }: NativeColumn, bytes: Uint8Array): number | bigint | string | boolean {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (kind === 'boolean') return bytes[0] === 1;
  if (kind !== 'fixed' || order === 'none') return Array.from(bytes, (byte) => String.fromCharCode(byte)).join('');
  if (order === 'floating') return (width === 4 ? view.getFloat32(0, true) : view.getFloat64(0, true)) + 0;
  if (width === 8) return order === 'signed' ? view.getBigInt64(0, true) : view.getBigUint64(0, true);
  const sign = order === 'signed' ? 'getInt' : 'getUint';
  return BigInt(width === 1 ? view[`${sign}8`](0) : width === 2 ? view[`${sign}16`](0, true) : view[`${sign}32`](0, true));
}

function compareValues(a: NonNullable<Cell>['value'], b: NonNullable<Cell>['value']): number {
  if (Number.isNaN(a) || Number.isNaN(b)) return Number(Number.isNaN(a)) - Number(Number.isNaN(b));
  return a < b ? -1 : a > b ? 1 : 0;
}

const compareRows =
  (columns: Column[], by: SortColumnSpec[]) =>
  (a: number, b: number): number => {
    for (const { column, descending, nullsLast } of by) {
      const [one, other] = [columns[column]!.cells[a]!, columns[column]!.cells[b]!];
      if (one === null || other === null) {
        if (one !== other) return (one === null) === nullsLast ? 1 : -1;
      } else {
        const result = compareValues(one.value, other.value);
        if (result !== 0) return descending ? -result : result;
      }
    }
    return a - b;
  };

function makeColumn(info: NativeColumn, cells: Cell[]): NativeResultColumn {
  const nullCount = cells.filter((cell) => cell === null).length;
  const bits = (of: (cell: Cell) => boolean): ArrayBuffer => {
    const bytes = new Uint8Array(Math.ceil(cells.length / 8));
    for (const [row, cell] of cells.entries()) if (of(cell)) bytes[row >> 3]! |= 1 << (row & 7);
    return bytes.buffer;
  };
  const validity = nullCount ? bits((cell) => cell !== null) : null;
  const made = (values: ArrayBuffer, offsets: ArrayBuffer | null): NativeResultColumn => {
    return { length: cells.length, nullCount, validity, chunks: [{ length: cells.length, values, offsets }] };
  };
  if (info.kind === 'boolean')
    return made(
      bits((cell) => cell?.value === true),
      null,
    );
  const width = (cell: Cell): number => (info.kind === 'fixed' ? info.width : (cell?.bytes.length ?? 0));
  const values = new Uint8Array(cells.reduce((sum, cell) => sum + width(cell), 0));
  const offsets = [0];
  for (const cell of cells) {
    if (cell) values.set(cell.bytes, offsets.at(-1)!);
    offsets.push(offsets.at(-1)! + width(cell));
  }
  const buffer = info.kind === 'utf8' ? Int32Array.from(offsets).buffer : BigInt64Array.from(offsets, BigInt).buffer;
  return made(values.buffer, info.kind === 'fixed' ? null : buffer);
}

function rowNumberColumn(rows: readonly number[]): NativeResultColumn {
  const values = Uint32Array.from(rows).buffer;
  return { length: rows.length, nullCount: 0, validity: null, chunks: [{ length: rows.length, values, offsets: null }] };
}

export interface FakeAddon extends NativeAddon {
  settings: FakeSettings;
  /** Of the last engine made. */
  config: NativeEngineConfig | null;
  /** Whose memory and threads the last engine made shares. */
  beside: NativeEngine | null;
  /** All that were made. */
  engines: NativeEngine[];
  /** Names of the native steps, in order. */
  calls: string[];
  /** What the GPUs failed by, once one is lost. */
  failure: string | null;
  liveHandles(): number;
}

export function fakeAddon(settings: Partial<FakeSettings> = {}): FakeAddon {
  FakeHandle.live = new Set();
  const addon: FakeAddon = {
    backend: settings.gpus ? 'cuda' : 'none',
    version: VERSION,
    gpuSupport: () => ({ architectures: '75-real,90', runtimeVersion: '13.0', driverVersion: '13.0', errorName: '', error: '' }),
    detach() {},
    mapFile: () => [],
    rowRuns: () => [],
    failThreads() {},
    gpus: () =>
      Array.from({ length: addon.settings.gpus }, (_, gpu) => ({
        ...fakeDevice('gpu', gpu, 2 ** 37, gpu, []),
        architecture: '9.0',
        failure: addon.failure,
      })),
    config: null,
    beside: null,
    engines: [],
    calls: [],
    failure: null,
    settings: {
      stepMilliseconds: 0,
      held: null,
      decodes: true,
      keysAreLeftValues: true,
      rowsAreKeysOf: null,
      complete: true,
      carriesPayload: true,
      sorted: false,
      seemsSorted: false,
      isSorted: true,
      bytesPerTuple: 32,
      keyBits: 64,
      failing: null,
      onStep: () => {},
      usedBytes: () => 0,
      plannedRows: null,
      gpus: 0,
      links: { sets: [], peers: [] },
      ...settings,
    },
    liveHandles: () => FakeHandle.live.size,
    Engine: function Engine(config: NativeEngineConfig, beside: NativeEngine | null = null) {
      Object.assign(addon, { config, beside });
      const engine = fakeEngine(addon, config);
      addon.engines.push(engine);
      return engine;
    } as unknown as NativeAddon['Engine'],
    CsvReader: function CsvReader() {
      throw new Error('the fake addon reads no files');
    } as unknown as NativeAddon['CsvReader'],
    ParquetReader: function ParquetReader() {
      throw new Error('the fake addon reads no files');
    } as unknown as NativeAddon['ParquetReader'],
    ParquetWriter: function ParquetWriter() {
      throw new Error('the fake addon writes no files');
    } as unknown as NativeAddon['ParquetWriter'],
    GrowingDictionary: function GrowingDictionary() {
      throw new Error('the fake addon writes no files');
    } as unknown as NativeAddon['GrowingDictionary'],
    placeIndices: () => new ArrayBuffer(0),
  };
  return addon;
}

function fakeDevice(
  kind: DeviceDescription['kind'],
  ordinal: number,
  limitBytes: number,
  number: number,
  peers: number[],
): DeviceDescription {
  const name = kind === 'gpu' ? `Fake GPU ${number}` : `host ${number}`;
  return {
    kind,
    ordinal,
    name,
    memoryBytes: limitBytes,
    limitBytes,
    peakBytes: 0,
    bytesToDevice: 0,
    bytesToHost: 0,
    residentBytes: 0,
    peers,
  };
}

function fakeEngine(addon: FakeAddon, config: NativeEngineConfig): NativeEngine {
  const options = addon.settings;
  const failure = (): string | null => (config.gpus.length > 0 ? addon.failure : null);
  if (failure()) throw coded('ERR_DEVICE', failure()!);
  let disposed = false;
  const limitBytes = config.deviceMemoryLimitBytes || config.memoryLimitBytes;
  const count = config.hostDevices + config.gpus.length;
  const devices = Array.from({ length: count }, (_, ordinal): DeviceDescription => {
    const peers = Array.from({ length: count }, (_, other) => other).filter((other) => other !== ordinal);
    return ordinal < config.hostDevices
      ? fakeDevice('host', ordinal, limitBytes, ordinal, peers)
      : fakeDevice('gpu', ordinal, limitBytes, config.gpus[ordinal - config.hostDevices]!, peers);
  });

  interface Job extends NativeJob {
    cancelled: boolean;
    add(planned: number, done: number): void;
  }
  const createJob = (): Job => {
    const state = { planned: 0, done: 0 };
    return {
      cancelled: false,
      cancel() {
        this.cancelled = true;
      },
      add(planned, done) {
        state.planned += planned;
        state.done += done;
      },
      progress: () => ({ ...state }),
      phases: () => [{ name: 'work', milliseconds: 1, bytes: 1000 }],
      events: () => [],
    };
  };

  async function step<T>(name: string, native: NativeJob, work: () => T): Promise<T> {
    const job = native as Job;
    addon.calls.push(name);
    if (disposed) throw coded('ERR_INTERNAL', 'The engine is disposed');
    const end = performance.now() + options.stepMilliseconds;
    job.add(100, 0);
    do {
      if (options.stepMilliseconds) await new Promise((resolve) => setTimeout(resolve, 2));
      if (job.cancelled) throw coded('ERR_ABORTED', 'The operation was aborted');
    } while (performance.now() < end);
    if (options.held) await options.held;
    job.add(0, 100);
    const waits = options.onStep(name);
    if (waits instanceof Promise) await waits;
    if (failure()) throw coded('ERR_DEVICE', failure()!);
    if (options.failing?.step === name) throw options.failing.error;
    return work();
  }

  const rowCells = (column: Column, rows: number[]): Cell[] => rows.map((row) => (row === MISSING ? null : column.cells[row]!));
  const sortRuns = (
    order: number[],
    ends: number[],
    payload: Column | null,
    compare: (a: number, b: number) => number,
    keys: Column | null = null,
  ): Run[] => {
    if (ends.at(-1) !== order.length) throw coded('ERR_INTERNAL', 'The chunksets are not all tuples');
    return ends.map((end, index) => new Run(order.slice(index ? ends[index - 1] : 0, end).sort(compare), payload, compare, keys));
  };

  const sortKeysInto = (handle: SortKeysHandle, chunksetEnds: number[]): RunHandle[] => {
    const keys = use<SortKeys>(handle);
    const compare = compareRows(keys.relation.columns, keys.by);
    const payload = keys.carriesPayload ? keys.relation.columns[keys.payload!]! : null;
    const column = keys.areValues ? keys.relation.columns[keys.by[0]!.column]! : null;
    return sortRuns([...Array(keys.rows).keys()], chunksetEnds, payload, compare, column) as unknown as RunHandle[];
  };

  function matches(keys: JoinKeys, request: NativeJoinRequest): Rows {
    const [left, right] = [keys.cells('left'), keys.cells('right')];
    const equal = (one: Cell, other: Cell, index: number): boolean =>
      one && other ? compareValues(one.value, other.value) === 0 : !one && !other && keys.nullsEqual[index]!;
    const pairs: [number, number][] = [];
    const matched = { left: new Set<number>(), right: new Set<number>() };
    for (const [i, one] of left.entries()) {
      for (const [j, other] of right.entries()) {
        if (!one.every((cell, index) => equal(cell, other[index]!, index))) continue;
        pairs.push([i, j]);
        matched.left.add(i);
        matched.right.add(j);
      }
    }
    const lonely = (side: Side): number[] => keys.cells(side).flatMap((_, row) => (matched[side].has(row) ? [] : [row]));
    const { kind } = request;
    if (kind === 'semi') pairs.splice(0, pairs.length, ...[...matched.left].map((row): [number, number] => [row, MISSING]));
    if (kind === 'anti') pairs.splice(0);
    if (kind === 'left' || kind === 'full' || kind === 'anti')
      pairs.push(...lonely('left').map((row): [number, number] => [row, MISSING]));
    if (kind === 'right' || kind === 'full') pairs.push(...lonely('right').map((row): [number, number] => [MISSING, row]));
    if (pairs.length > request.maxRows)
      throw coded('ERR_OUTPUT_ROWS', `The join has ${pairs.length} rows, more than ${request.maxRows}`);
    return new Rows(pairs, pairs.length, keys, request);
  }
  const keysOf = ({ keys: handle, payload }: KeyedTables): JoinKeys => {
    const of = ({ table, keys }: TableKeys, payload: number | null) => {
      const { rows, columns } = use<Resident>(table);
      return { relation: { rows, columns } as Relation, columns: keys, payload };
    };
    const { left, right } = use<TableJoinKeys>(handle);
    const sides = { left: of(left, payload.left), right: of(right, payload.right) };
    const keys = new JoinKeys(8, true, true, null, sides, null, false, [false], true);
    keys.release();
    return keys;
  };
  const comparePairs = (by: Side) => {
    const [one, other] = by === 'left' ? ([0, 1] as const) : ([1, 0] as const);
    // Missing rows come last, and the difference of two of them is no number.
    const place = (row: number): number => (row === MISSING ? Number.MAX_VALUE : row);
    return (a: [number, number], b: [number, number]): number =>
      place(a[one]) - place(b[one]) || place(a[other]) - place(b[other]);
  };
  const side = (rows: Rows, which: Side): number[] => rows.pairs.map((pair) => pair[which === 'left' ? 0 : 1]);
  const rowNumbers = (handle: RunHandle | RowsHandle, which: Side): number[] => {
    const rows = use<Run | Rows>(handle);
    if (rows instanceof Run ? rows.payload : rows.keys?.[which].carriesPayload)
      throw coded('ERR_INTERNAL', 'The handle has no row numbers');
    return rows instanceof Run ? rows.order : side(rows, which);
  };

  const engine: { [K in keyof NativeEngine]: NativeEngine[K] } = {
    devices: () => devices,
    setMemoryLimit(bytes) {
      config.memoryLimitBytes = bytes;
    },
    mergeScratchBytes: () => 1000,
    dropKeys(handle) {
      use<Run>(handle);
    },
    threads: () => config.threads,
    memory: () => ({ usedBytes: options.usedBytes(), peakBytes: 1000, limitBytes: config.memoryLimitBytes }),
    resetPeaks() {},
    reserve: () => ({ release() {} }) as ReservationHandle,
    allocate: (bytes) => new ArrayBuffer(bytes),
    trimMemory: (job) => step('trimMemory', job, () => {}),
    failure,
    createJob,
    async dispose() {
      addon.calls.push('dispose');
      disposed = true;
    },
    measureLinks: (job) => step('measureLinks', job, () => options.links),
    relation: (job, columns, rows) =>
      step(
        'relation',
        job,
        () =>
          new Relation(
            rows,
            columns.map((column) => readColumn(column, rows)),
          ) as unknown as RelationHandle,
      ),
    sortKeys: (job, relation, by, payload, allowFlip) =>
      step('sortKeys', job, () => {
        const { rows } = use<Relation>(relation);
        const { complete, plannedRows, sorted } = options;
        const keys = new SortKeys(use(relation), by, payload, complete, plannedRows ?? rows, sorted, allowFlip);
        return keys as unknown as SortKeysHandle;
      }),
    sortDeviceBytes: (_key, _value, tuples, count, _algorithm, several) =>
      Math.ceil(tuples / count) * options.bytesPerTuple * (several ? 2 : 1),
    sortSpills: () => false,
    sortChunksets: (job, handle, { chunksetEnds }) => step('sortChunksets', job, () => sortKeysInto(handle, chunksetEnds)),
    copyRun: (job, handle) => step('copyRun', job, () => sortKeysInto(handle, [handle.rows])[0]!),
    cutRun: (job, handle, begin, end) =>
      step('cutRun', job, () => {
        const run = use<Run>(handle);
        run.release();
        return new Run(run.order.slice(begin, end), run.payload, run.compare, run.keys) as unknown as RunHandle;
      }),
    topRows: (job, relation, by, skip, count) =>
      step('topRows', job, () => {
        const { rows, columns } = use<Relation>(relation);
        const compare = compareRows(columns, by);
        const order = [...Array(rows).keys()].sort(compare).slice(skip, skip + count);
        return new Run(order, null, compare) as unknown as RunHandle;
      }),
    rowsAreSorted: (job, relation, by) =>
      step('rowsAreSorted', job, () => {
        const { rows, columns } = use<Relation>(relation);
        const compare = compareRows(columns, by);
        return [...Array(Math.max(0, rows - 1)).keys()].every((row) => compare(row, row + 1) <= 0);
      }),
    searchSorted: (job, table, _by, values) =>
      step('searchSorted', job, () => {
        const { rows } = use<Relation>(table);
        return rowNumberColumn(Array(use<Relation>(values).rows).fill(rows));
      }),
    cutMerge: (job, table, by, ends, rows) =>
      step('cutMerge', job, () => {
        const compare = compareRows(use<Relation>(table).columns, by);
        const before = (row: number, other: number): boolean => (compare(row, other) || row - other) < 0;
        const least = rows.reduce((least, row) => (before(row, least) ? row : least));
        const runs = ends.map((end, run) => [...Array(end).keys()].slice(run > 0 ? ends[run - 1] : 0));
        return {
          run: ends.findIndex((end) => least < end),
          rows: runs.map((run) => run.filter((row) => before(row, least)).length),
        };
      }),
    topRowsBytes: (_rows, kept) => 1000 + kept * 64,
    mergeRuns: (job, handles) =>
      step('mergeRuns', job, () => {
        const runs = handles.map((handle) => use<Run>(handle));
        const merged = new Run(
          runs.flatMap((run) => run.order).sort(runs[0]!.compare),
          runs[0]!.payload,
          runs[0]!.compare,
          runs[0]!.keys,
        );
        for (const run of runs) run.release();
        return merged as unknown as RunHandle;
      }),
    refineTies: (job, keys, run) =>
      step('refineTies', job, () => {
        use(keys);
        use(run);
      }),
    decodeKeys: (job, handle, sortColumn, run) =>
      step('decodeKeys', job, () => {
        const keys = use<SortKeys>(handle);
        const column = keys.relation.columns[keys.by[sortColumn]!.column]!;
        return options.decodes ? makeColumn(column.info, rowCells(column, use<Run>(run).order)) : null;
      }),
    takeValues(_job, handle) {
      const run = use<Run>(handle);
      if (run.taken) throw coded('ERR_INTERNAL', 'The values were taken');
      run.taken = true;
      return run.payload ? makeColumn(run.payload.info, rowCells(run.payload, run.order)) : rowNumberColumn(run.order);
    },
    takeKeys(_job, handle) {
      const run = use<Run>(handle);
      if (!run.keys) throw coded('ERR_INTERNAL', 'The keys are not values');
      return makeColumn(run.keys.info, rowCells(run.keys, run.order));
    },
    joinKeys: (job, left, leftColumns, leftPayload, right, rightColumns, rightPayload, comparisons) =>
      step('joinKeys', job, () => {
        const payload = (of: NativePayload): number | null => {
          if (of === null || typeof of === 'number') return of;
          return options.keysAreLeftValues ? of.given : of.otherwise;
        };
        const sides = {
          left: { relation: use<Relation>(left), columns: leftColumns, payload: payload(leftPayload) },
          right: { relation: use<Relation>(right), columns: rightColumns, payload: payload(rightPayload) },
        };
        const { width } = sides.left.relation.columns[leftColumns[0]!]!.info;
        const { carriesPayload, keysAreLeftValues, rowsAreKeysOf, plannedRows, seemsSorted } = options;
        return new JoinKeys(
          width === 4 ? 4 : 8,
          carriesPayload,
          keysAreLeftValues,
          rowsAreKeysOf,
          sides,
          plannedRows,
          seemsSorted,
          comparisons.map(({ nullsEqual }) => nullsEqual),
        ) as unknown as JoinKeysHandle;
      }),
    hashJoinDeviceBytes: (handle, count, _request, rounds) => {
      const keys = use<JoinKeys>(handle);
      return Math.ceil(((keys.left.rows + keys.right.rows) / count / rounds) * options.bytesPerTuple);
    },
    hashJoinSpill: (handle, _count, _request, rounds) => {
      const keys = use<JoinKeys>(handle);
      const rows = rounds > 1 ? keys.left.rows + keys.right.rows : 0;
      return { rows, bytes: 12 * rows, hostBytes: 12 * rows };
    },
    mergeJoinDeviceBytes: (handle, count, subpartitions) => {
      const keys = use<JoinKeys>(handle);
      return Math.ceil(((keys.left.rows + keys.right.rows) / count / subpartitions) * options.bytesPerTuple);
    },
    hashJoin: (job, keys, request) => step('hashJoin', job, () => matches(use(keys), request) as unknown as RowsHandle),
    joinSideIsSorted: (job, keys) =>
      step('joinSideIsSorted', job, () => {
        use(keys);
        return options.isSorted;
      }),
    sortJoinSide: (job, handle, which, { chunksetEnds }) =>
      step('sortJoinSide', job, () => {
        const keys = use<JoinKeys>(handle);
        const { relation } = keys.sides[which];
        const cells = keys.cells(which);
        const order = [...Array(relation.rows).keys()].filter((row) => keys.isTuple(cells[row]!));
        const compare = (one: Cell, other: Cell): number =>
          one && other ? compareValues(one.value, other.value) : Number(other !== null) - Number(one !== null);
        return sortRuns(
          order,
          chunksetEnds,
          null,
          (a, b) => cells[a]!.map((cell, index) => compare(cell, cells[b]![index]!)).find((order) => order !== 0) ?? 0,
        ) as unknown as RunHandle[];
      }),
    mergeJoin: (job, keys, left, right, request) =>
      step('mergeJoin', job, () => {
        for (const run of [left, right]) if (run) use(run);
        return matches(use(keys), request) as unknown as RowsHandle;
      }),
    sortMergeJoinDeviceBytes: (handle, count) => {
      const keys = use<JoinKeys>(handle);
      return ((keys.left.tuples + keys.right.tuples) / count) * options.bytesPerTuple;
    },
    sortMergeJoin: (job, keys, request) => step('sortMergeJoin', job, () => matches(use(keys), request) as unknown as RowsHandle),
    lookupJoin: (job, keys, request) => step('lookupJoin', job, () => matches(use(keys), request) as unknown as RowsHandle),
    crossJoin: (job, left, right, _maxRows, first, offset, limit) =>
      step('crossJoin', job, () => {
        const pairs = Array.from({ length: left * right }, (_, row): [number, number] =>
          first === 'left' ? [Math.floor(row / right), row % right] : [row % left, Math.floor(row / left)],
        ).slice(offset, offset + limit);
        return new Rows(pairs, pairs.length, null, null) as unknown as RowsHandle;
      }),
    orderRows: (job, handle, by) =>
      step('orderRows', job, () => {
        use<Rows>(handle).pairs.sort(comparePairs(by));
      }),
    orderRowsBytes: (rows, rowBytes, otherBytes) => rows * (rowBytes + otherBytes),
    uniqueRows: (job, handle, keep) =>
      step('uniqueRows', job, () => {
        const keys = use<JoinKeys>(handle);
        const { relation, columns } = keys.sides.left;
        const column = columns[0]!;
        const rows = new Map<unknown, number[]>();
        for (const [row, cell] of relation.columns[column]!.cells.entries()) {
          const key = cell?.value;
          rows.set(key, [...(rows.get(key) ?? []), row]);
        }
        const kept = [...rows.values()].flatMap((group) =>
          keep === 'none' ? (group.length === 1 ? group : []) : [group.at(keep === 'first' ? 0 : -1)!],
        );
        const pairs = kept.sort((a, b) => a - b).map((row): [number, number] => [row, MISSING]);
        return new Rows(pairs, pairs.length, null, null) as unknown as RowsHandle;
      }),
    uniqueRowsBytes: (handle) => use<JoinKeys>(handle).left.rows * 12,
    groupRows: (job, handle, columns, _comparisons, _side, groups) =>
      step('groupRows', job, () => {
        const relation = use<Relation>(handle);
        const groupOf = (row: number): number => {
          const keys = columns.map((column) => String(relation.columns[column]!.cells[row]?.value));
          return [...keys.join(' ')].reduce((sum, letter) => sum + letter.charCodeAt(0), 0) % groups;
        };
        const rows = [...Array(relation.rows).keys()];
        const pairs: [number, number][] = [];
        const ends = Array.from({ length: groups }, (_, group) => {
          for (const row of rows) if (groupOf(row) === group) pairs.push([row, MISSING]);
          return pairs.length;
        });
        return new Rows(pairs, pairs.length, null, null, ends) as unknown as RowsHandle;
      }),
    repeatedKey: (job, handle) =>
      step('repeatedKey', job, () => {
        const { relation, columns } = use<JoinKeys>(handle).sides.left;
        const column = columns[0]!;
        const first = new Map<unknown, number>();
        for (const [row, cell] of relation.columns[column]!.cells.entries()) {
          if (!cell) continue;
          const seen = first.get(cell.value);
          if (seen !== undefined) return { first: seen, row };
          first.set(cell.value, row);
        }
        return null;
      }),
    sliceRows: (job, handle, offset, limit) =>
      step('sliceRows', job, () => {
        const { pairs } = use<Rows>(handle);
        pairs.splice(0, offset);
        pairs.splice(Math.min(limit, pairs.length));
        return pairs.length;
      }),
    decodeJoinKeys: (job) =>
      step('decodeJoinKeys', job, () => {
        throw coded('ERR_INTERNAL', 'These keys are not packed');
      }),
    takeJoinKeys(_job, handle) {
      const rows = use<Rows>(handle);
      if (!rows.request?.wantKeys) throw coded('ERR_INTERNAL', 'The keys were not asked for');
      const { relation, columns } = rows.keys!.sides.left;
      const column = relation.columns[columns[0]!]!;
      return makeColumn(column.info, rowCells(column, side(rows, 'left')));
    },
    takeJoinValues(_job, handle, which) {
      const rows = use<Rows>(handle);
      if (rows.request && !rows.request[which === 'left' ? 'wantLeft' : 'wantRight'])
        throw coded('ERR_INTERNAL', 'These values were not asked for');
      if (rows.keys?.[which].carriesPayload) {
        const { relation, payload } = rows.keys.sides[which];
        const column = relation.columns[payload!]!;
        return makeColumn(column.info, rowCells(column, side(rows, which)));
      }
      return rowNumberColumn(side(rows, which));
    },
    gather: (job, relation, column, handle, which) =>
      step('gather', job, () => {
        const from = use<Relation>(relation).columns[column]!;
        return makeColumn(from.info, rowCells(from, rowNumbers(handle, which)));
      }),
    gatherCoalesced: (job, left, leftColumn, right, rightColumn, handle, as) =>
      step('gatherCoalesced', job, () => {
        const rows = use<Rows>(handle);
        const [one, other] = [use<Relation>(left).columns[leftColumn]!, use<Relation>(right).columns[rightColumn]!];
        if (as.left || as.right) throw coded('ERR_INTERNAL', 'The fake addon converts no columns');
        return makeColumn(
          one.info,
          rows.pairs.map(([i, j]) => (i === MISSING ? other.cells[j]! : one.cells[i]!)),
        );
      }),
    gatherDeviceBytes: (_relation, columns, { size, rowBytes }, count) =>
      Math.ceil(((columns.length * 16 + rowBytes) * size) / count),
    gatherOnDevices: (job, relation, columns, handle, which) =>
      step('gatherOnDevices', job, () => {
        const numbers = rowNumbers(handle, which);
        return columns.map((column) => {
          const from = use<Relation>(relation).columns[column]!;
          return makeColumn(from.info, rowCells(from, numbers));
        });
      }),
    residentBytes: (relation, columns, ordinals) =>
      columns.reduce((bytes, column) => bytes + use<Relation>(relation).columns[column]!.info.width * relation.rows, 0) /
      ordinals.length,
    loadTable: (job, relation, columns, ordinals) =>
      step('loadTable', job, () => {
        const from = use<Relation>(relation);
        const bytes = engine.residentBytes(relation, columns, ordinals);
        const on = ordinals.map((ordinal) => devices[ordinal]!);
        const loaded = columns.map((column) => from.columns[column]!);
        return new Resident(loaded, from.rows, bytes, on) as unknown as ResidentHandle;
      }),
    bringHome: (job, table, columns) =>
      step('bringHome', job, () => {
        const from = use<Resident>(table);
        return columns.map((column) => makeColumn(from.columns[column]!.info, from.columns[column]!.cells));
      }),
    tableJoinKeys: (job, left, right, nullsEqual) =>
      step('tableJoinKeys', job, () => {
        const keys = new TableJoinKeys(left, right, nullsEqual, options.keyBits, options.decodes);
        return keys as unknown as TableJoinKeysHandle;
      }),
    joinTables: (job, tables, request, origins, order) =>
      step('joinTables', job, () => {
        const { left, right, giveLeft } = use<TableJoinKeys>(tables.keys);
        const joined = matches(keysOf(tables), request);
        if (order) {
          if (!origins.every((origin) => origin.from !== 'keys' && origin.column !== null))
            throw coded('ERR_OPTION', "Rows of a join that carry more than row numbers can't be ordered");
          const { first, rows } = order.window;
          joined.pairs.sort(comparePairs(order.side));
          joined.pairs.splice(0, joined.pairs.length, ...joined.pairs.slice(first, first + rows));
        }
        const columns = origins.map((origin): Column => {
          if (origin.from === 'keys' && !giveLeft[origin.pair])
            throw coded('ERR_INTERNAL', 'The keys do not give the left column');
          const from = origin.from === 'keys' ? 'left' : origin.from;
          const of = from === 'left' ? left : right;
          const index = origin.from === 'keys' ? left.keys[origin.pair]! : (origin.column ?? tables.payload[from]!);
          const column = use<Resident>(of.table).columns[index]!;
          return { info: column.info, cells: rowCells(column, side(joined, from)) };
        });
        joined.release();
        const size = joined.pairs.length;
        const on = use<Resident>(left.table).devices;
        return new Resident(columns, size, size, on, true) as unknown as ResidentHandle;
      }),
    joinTablesHome: (job, tables, request) =>
      step('joinTablesHome', job, () => {
        if (request.wantKeys && !tables.keys.areColumns) throw coded('ERR_INTERNAL', 'The keys are not the left column');
        return matches(keysOf(tables), request) as unknown as RowsHandle;
      }),
    joinTablesDeviceBytes: ({ keys }) => {
      const { left, right } = use<TableJoinKeys>(keys);
      return Math.ceil(((left.table.rows + right.table.rows) / config.gpus.length) * options.bytesPerTuple);
    },
    tableSortKeys: (job, table, by, payload) =>
      step(
        'tableSortKeys',
        job,
        () => new TableSortKeys(use(table), by, payload, options.keyBits, options.decodes) as unknown as TableSortKeysHandle,
      ),
    sortTable: (job, handle, columns, { first, rows }) =>
      step('sortTable', job, () => {
        const { table: from, by, carriesPayload } = use<TableSortKeys>(handle);
        const others = new Set(columns.filter((column) => !by.some((key) => key.column === column)));
        if (carriesPayload && others.size > 1) throw coded('ERR_NOT_SUPPORTED', 'There are no row numbers');
        const all = [...Array(from.rows).keys()].sort(compareRows(from.columns, by));
        const order = all.slice(first, first + rows);
        const sorted = columns.map((column): Column => {
          const { info, cells } = from.columns[column]!;
          return { info, cells: order.map((row) => cells[row]!) };
        });
        return new Resident(sorted, order.length, order.length, from.devices, true) as unknown as ResidentHandle;
      }),
    sortTableDeviceBytes: (handle) =>
      Math.ceil((2 * use<TableSortKeys>(handle).table.rows * options.bytesPerTuple) / config.gpus.length),
    failAllocation() {},
    leaveDeviceMemory() {},
    loseDevice(ordinal) {
      addon.failure = `Device '${devices[ordinal]!.name}' failed earlier: an illegal memory access was encountered`;
    },
  };
  return engine as NativeEngine;
}
