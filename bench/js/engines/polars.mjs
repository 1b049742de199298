import pl from 'nodejs-polars';
import { exactText } from '../checks.mjs';

const column = (by) => (typeof by === 'string' ? { column: by, descending: false } : by);

/** Data frames in, a data frame out. Its calls block the event loop. */
export async function open({ kind, options }, files) {
  const frames = {};
  for (const [name, { parquet }] of Object.entries(files)) frames[name] = pl.readParquet(parquet).rechunk();
  const { left, right, table } = frames;
  const by = (options.by ?? []).map(column);
  let result;
  const variants =
    kind === 'unique'
      ? {
          unique: async () => {
            result = table.unique([options.on], 'any');
          },
        }
      : options.maintainOrder
        ? {} // its Node.js binding has no such option
        : kind === 'join'
          ? {
              count: async () => {
                result = left.lazy().join(right.lazy(), { on: options.on, how: 'inner' }).select(pl.len()).collectSync();
              },
              materialize: async () => {
                result = left.join(right, { on: options.on, how: 'inner' });
              },
            }
          : {
              sort: async () => {
                const how = {
                  by: by.map(({ column }) => column),
                  descending: by.map(({ descending }) => descending),
                  nullsLast: by.map(() => true),
                  maintainOrder: false,
                };
                result = options.limit ? table.lazy().sort(how).head(options.limit).collectSync() : table.sort(how);
              },
            };
  return {
    variants,
    form: 'data frames to a data frame',
    prepare: async () => {
      result = undefined;
    },
    check: async (variant) => {
      if (variant === 'count') return { rows: Number(result.row(0)[0]) };
      const rows = result.height;
      if (kind === 'unique') return { rows, sum: Number(result.getColumn(options.on).sum()) };
      if (kind === 'join') {
        return { rows, sums: ['left_payload', 'right_payload'].map((name) => Number(result.getColumn(name).sum())) };
      }
      // Rows, for a series gives 64-bit integers cut to 32 bits.
      const keys = result.select(...by.map(({ column }) => (column === 'day' ? pl.col(column).cast(pl.Int32) : pl.col(column))));
      return { rows, sample: exactText.places(rows).map((row) => keys.row(row).map(String).join(' ')) };
    },
    close: async () => {},
  };
}
