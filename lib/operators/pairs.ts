/** Sorts and joins of typed arrays: the same operators on tables of two columns, without Arrow around them. */
import { type Input, type KeyArray, readArrays } from '../columns/input.js';
import { joinLayout, sortLayout } from '../columns/layout.js';
import { valuesOf } from '../columns/result.js';
import { readingFor } from '../errors.js';
import { joinKeysSchema, joinSchema, joinSettings, type Running, sortPairsSchema } from '../options.js';
import { expected, parse, pick } from '../schema.js';
import type { JoinedPairs, Pairs, SortedPairs } from '../types.js';
import { type EngineCore, runCall } from './call.js';
import { placeJoin, runJoin } from './join.js';
import { placeSort, runSort } from './sort.js';

export async function sortPairs<K extends KeyArray, V extends KeyArray>(
  core: EngineCore,
  keys: K,
  values: V,
  options: unknown,
): Promise<SortedPairs<K, V>> {
  const { descending, algorithm, ...running } = parse(sortPairsSchema, 'sortPairs', options);
  const table = readPairs({ keys, values }, 'sortPairs');
  const columns = sortLayout(table, undefined);
  const by = [{ column: 'keys', descending, nullsLast: true }];
  const rows = { begin: 0, end: table.rows };
  const task = { table, by, keys: [0], columns, algorithm, resident: false, rows };
  return runCall({ ...placeSort(core, task), givesArrays: true }, running, async (call) => {
    const sorted = await runSort(call, task);
    const [sortedKeys, sortedValues] = sorted.columns.map((column, index) => valuesOf(columns[index]!.type, column));
    return { keys: sortedKeys as unknown as K, values: sortedValues as unknown as V, stats: sorted.stats };
  });
}

export async function joinKeys<K extends KeyArray, R extends KeyArray, S extends KeyArray>(
  core: EngineCore,
  r: Pairs<K, R>,
  s: Pairs<KeyArray, S>,
  options: unknown,
): Promise<JoinedPairs<K, R, S>> {
  const given = parse(joinKeysSchema, 'joinKeys', options);
  const settings: ReturnType<typeof joinSettings> & Running = {
    ...joinSettings(pick(joinSchema, ['on']), 'joinKeys', { on: 'keys' }),
    ...given,
  };
  const [left, right] = [readPairs(r, 'r'), readPairs(s, 's')];
  const { keys, columns } = joinLayout(left, right, settings);
  const task = { left, right, keys, settings, want: { columns } };
  return runCall({ ...placeJoin(core, task), givesArrays: true }, settings, async (call) => {
    const joined = await runJoin(call, task);
    const [k, rValues, sValues] = joined.columns.map((column, index) => valuesOf(columns[index]!.type, column));
    return { keys: k as unknown as K, r: rValues as unknown as R, s: sValues as unknown as S, stats: joined.stats };
  });
}

function readPairs(pairs: unknown, argument: string): Input {
  if (typeof pairs !== 'object' || pairs === null) throw expected('{ keys, values }, two typed arrays,', argument, pairs);
  return readingFor('ERR_INVALID_TABLE', `${argument} can't be read`, () => {
    const { keys, values } = pairs as Partial<Pairs<unknown, unknown>>;
    return readArrays({ keys, values }, argument);
  });
}
