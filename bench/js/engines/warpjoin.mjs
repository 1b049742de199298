import { createEngine } from '../../../dist/index.js';
import { readTable } from '../../../dist/io/index.js';
import { exactText } from '../checks.mjs';

/** Arrow tables in, Arrow tables out, on the processor. */
export async function open({ kind, options }, files, settings) {
  const engine = await createEngine({ device: 'cpu', ...settings });
  const tables = {};
  for (const [name, { arrow }] of Object.entries(files)) tables[name] = await readTable(arrow);
  const { left, right, table } = tables;
  let result;
  const variants =
    kind === 'join'
      ? {
          count: async () => {
            result = await engine.joinCount(left, right, options);
          },
          materialize: async () => {
            result = await engine.join(left, right, options);
          },
        }
      : kind === 'unique'
        ? {
            unique: async () => {
              result = await engine.unique(table, options);
            },
          }
        : {
            sort: async () => {
              result = await engine.sort(table, options);
            },
          };
  return {
    variants,
    form: 'Arrow tables in memory to an Arrow table',
    /** Frees the last result. */
    prepare: async () => {
      result = undefined;
    },
    check: async (variant) => {
      if (variant === 'count') return { rows: result };
      if (kind === 'unique') return { rows: result.numRows, sum: exactText.sum(result.getChild('key')) };
      if (kind === 'sort') return { rows: result.numRows, sample: exactText.sample(result, options.by) };
      return {
        rows: result.numRows,
        sums: ['left_payload', 'right_payload'].map((name) => exactText.sum(result.getChild(name))),
      };
    },
    stats: () => result.stats,
    outputBytes: () => result.batches?.reduce((sum, batch) => sum + batch.data.byteLength, 0),
    close: () => engine.dispose(),
  };
}
