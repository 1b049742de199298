/**
 * Joins of record batches as they come: the build side is read first and stays in memory; parts of the probe side are joined with it
 * one after the other, as tables are.
 */
import type * as arrow from 'apache-arrow';
import type { ForeignTable } from '../columns/input.js';
import { libraryOf } from '../columns/library.js';
import { isSameType } from '../columns/types.js';
import { WarpjoinError } from '../errors.js';
import type { Side } from '../native.js';
import { type JoinBatchesSettings, type JoinKind, joinBatchesSettings } from '../options.js';
import { quote } from '../suggest.js';
import { buffersOf, halvesOf, nullIfShort, Part } from './batch-part.js';
import { type BatchSource, batchSource } from './batch-source.js';
import { type BatchesCore, type BatchStats, BatchStream, cut } from './batch-stream.js';
import { isMemoryLimit, translated } from './call.js';
import { joinTables } from './join.js';
import { FreeMemory } from './reclaim.js';

/** The share of the memory that is free beside the build side that a part of the probe side takes at most: beside it lie its rows. */
const PART_SHARE = 1 / 8;

type Rows = readonly (arrow.RecordBatch | arrow.Table)[];

export function joinBatches(
  core: BatchesCore | Promise<BatchesCore>,
  left: unknown,
  right: unknown,
  options: unknown,
): BatchStream {
  const settings = joinBatchesSettings(options);
  const { signal, batchRows } = settings;
  const sources = { left: batchSource(left, 'left', signal), right: batchSource(right, 'right', signal) };
  return new BatchStream(signal, async function* (stats, hold) {
    const joining = hold(new Joining(await core, settings, stats));
    yield* cut(joining.rows(sources), batchRows, stats);
  });
}

/** How parts of the probe side are joined, and what of the build side's rows without a match is needed. */
interface Strategy {
  /** null: parts give no rows. */
  part: JoinKind | null;
  /** Whether the rows that parts match are those that no part before has matched. */
  ofUnmatched: boolean;
  /** Whether rows that no part has matched come at the end. */
  unmatched: boolean;
}

function strategyOf({ how, buildSide, probeSide }: JoinBatchesSettings): Strategy {
  if (how === 'full') return { part: probeSide, ofUnmatched: false, unmatched: true };
  if (how === buildSide) return { part: 'inner', ofUnmatched: false, unmatched: true };
  const givesBuild = (how === 'semi' || how === 'anti') && buildSide === 'left';
  if (givesBuild) return { part: how === 'semi' ? 'semi' : null, ofUnmatched: true, unmatched: how === 'anti' };
  return { part: how, ofUnmatched: false, unmatched: false };
}

/** One join of batches, and what it holds. */
class Joining implements AsyncDisposable {
  readonly #build = new Part();
  readonly #strategy: Strategy;
  #probe = new Part();
  /** Rows of the build side without a match up to now. */
  #unmatched: readonly arrow.RecordBatch[] = [];
  /** The build side without its rows. */
  #noBuild: arrow.Table | undefined;

  constructor(
    private readonly core: BatchesCore,
    private readonly settings: JoinBatchesSettings,
    private readonly stats: BatchStats,
  ) {
    this.#strategy = strategyOf(settings);
  }

  /** The rows, behind a table without rows that has their columns. */
  async *rows(sources: Record<Side, BatchSource>): AsyncGenerator<arrow.Table> {
    const { how, buildSide, probeSide } = this.settings;
    try {
      for await (const table of sources[buildSide].tables) {
        this.#noBuild ??= table.slice(0, 0);
        this.stats.inputRows += table.numRows;
        for (const batch of table.batches) this.#add(this.#build, batch, sources[buildSide].isHeld);
      }
      this.#unmatched = this.#build.batches;
      let none: { probe: arrow.Table; schema: arrow.Schema } | undefined;
      // The first rows are given as soon as they are there; larger parts take less time a row.
      let partBytes = 0;
      const free = new FreeMemory(this.core.native);
      for await (const table of sources[probeSide].tables) {
        if (!none) {
          const probe = table.slice(0, 0);
          const made = await this.#join(how, [], [probe]);
          none = { probe, schema: made.schema };
          yield made;
        }
        this.stats.inputRows += table.numRows;
        for (const batch of table.batches) {
          this.#add(this.#probe, batch, sources[probeSide].isHeld);
          if (this.#probe.bytes < partBytes) continue;
          partBytes = Math.min(2 * this.#probe.bytes, PART_SHARE * (await free.bytes()));
          yield* this.#joined(none.schema);
        }
      }
      yield* this.#joined(none!.schema);
      if (this.#strategy.unmatched && this.#unmatched.length > 0) {
        yield withSchema(none!.schema, await this.#join(how, this.#unmatched, [none!.probe]));
      }
    } finally {
      await this[Symbol.asyncDispose]();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#probe.release();
    this.#build.release();
    this.#unmatched = [];
  }

  #add(part: Part, batch: arrow.RecordBatch, isHeld: boolean): void {
    if (batch.numRows === 0) return;
    const bytes = part.count(batch);
    const reserve = () => translated(() => this.core.native.reserve(bytes));
    try {
      part.add(batch, bytes, isHeld ? null : reserve());
    } catch (error) {
      if (part !== this.#build || !isMemoryLimit(error)) throw error;
      const { message } = error as Error;
      const side = `The ${this.settings.buildSide} side stays in memory, and does not fit: a join that spills it to disk is not supported yet.`;
      throw new WarpjoinError('ERR_MEMORY_LIMIT', `${message}. ${side} buildSide names the side that does.`, { cause: error });
    }
  }

  /** The rows that the part of the probe side gives. */
  async *#joined(schema: arrow.Schema): AsyncGenerator<arrow.Table> {
    const part = this.#probe;
    this.#probe = new Part();
    try {
      if (part.batches.length > 0) yield* this.#joinedAll(part.batches, schema);
    } finally {
      part.release();
    }
  }

  /** The same of some batches: of halves of them, where memory is short. */
  async *#joinedAll(batches: readonly arrow.RecordBatch[], schema: arrow.Schema): AsyncGenerator<arrow.Table> {
    const made = await this.#joinPart(batches).catch((error: unknown) => {
      if (batches.length === 1 && batches[0]!.numRows === 1) throw error;
      return nullIfShort(error);
    });
    if (made) {
      if (made.rows) yield withSchema(schema, made.rows);
      return;
    }
    for (const half of halvesOf(batches)) yield* this.#joinedAll(half, schema);
  }

  /** The rows that some of the probe side give; takes the build side's rows that they match off those without a match. */
  async #joinPart(probe: readonly arrow.RecordBatch[]): Promise<{ rows: arrow.Table | null }> {
    const { part, ofUnmatched, unmatched } = this.#strategy;
    const rows = part && (await this.#join(part, ofUnmatched ? this.#unmatched : this.#build.batches, probe));
    if ((ofUnmatched || unmatched) && this.#unmatched.length > 0) await this.#leaveOut(probe);
    return { rows };
  }

  async #leaveOut(probe: readonly arrow.RecordBatch[]): Promise<void> {
    const { keys, nullsEqual, buildSide, probeSide } = this.settings;
    const options = {
      leftOn: keys![buildSide],
      rightOn: keys![probeSide],
      nullsEqual,
      how: 'anti',
      signal: this.settings.signal,
    };
    const { batches } = (await joinTables(this.core, this.#unmatched, probe, options)) as arrow.Table;
    const before = this.#unmatched;
    this.#unmatched = batches.filter(({ numRows }) => numRows > 0);
    if (before !== this.#build.batches) await this.core.free(buffersOf(before));
  }

  #join(how: JoinKind, build: Rows, probe: Rows): Promise<arrow.Table> {
    const { keys, nullsEqual, coalesce, suffix, select, maintainOrder, algorithm, buildSide, signal } = this.settings;
    const on = keys && { leftOn: keys.left, rightOn: keys.right, nullsEqual, coalesce };
    const built = build.length > 0 ? build : [this.#noBuild!];
    const [left, right] = buildSide === 'left' ? [built, probe] : [probe, built];
    const options = { ...on, how, suffix, select, maintainOrder, algorithm, signal };
    return joinTables(this.core, left, right, options) as Promise<arrow.Table>;
  }
}

/** The rows of a table under a schema whose fields differ in where nulls may be. Throws ERR_NOT_SUPPORTED for another. */
function withSchema(schema: arrow.Schema, table: arrow.Table): arrow.Table {
  for (const [index, { name, type }] of table.schema.fields.entries()) {
    if (isSameType(type as never, schema.fields[index]!.type as never)) continue;
    throw new WarpjoinError(
      'ERR_NOT_SUPPORTED',
      `Column ${quote(name)} is ${type} in some batches and ${schema.fields[index]!.type} in others: that is not supported yet. ` +
        'Cast the keys of both sides to one type, or dictionaries to their values.',
    );
  }
  const library = libraryOf(table as unknown as ForeignTable);
  const struct = new library.Struct(schema.fields);
  const batches = table.batches.map(({ data }) => {
    const parts = [struct, 0, data.length, 0, [undefined, undefined, new Uint8Array(0)], data.children] as const;
    const under = new (library.Data as unknown as new (...parts: unknown[]) => arrow.Data<arrow.Struct>)(...parts);
    return new library.RecordBatch(schema, under);
  });
  return new library.Table(schema, batches);
}
