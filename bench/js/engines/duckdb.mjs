import { DuckDBInstance } from '@duckdb/node-api';
import { exactText } from '../checks.mjs';

const column = (by) => (typeof by === 'string' ? { column: by, descending: false } : by);

/** Tables of an in-memory database in, such a table out. */
export async function open({ kind, options }, files, { threads }) {
  const instance = await DuckDBInstance.create(':memory:', { threads: String(threads) });
  const connection = await instance.connect();
  const run = (sql) => connection.run(sql);
  const rowOf = async (sql) => (await connection.runAndReadAll(sql)).getRows();
  for (const [name, { parquet }] of Object.entries(files)) {
    await run(`CREATE TABLE "${name}" AS SELECT * FROM read_parquet('${parquet.replaceAll("'", "''")}')`);
  }
  // The order of a join's rows is free, or asked for below, and DuckDB is faster without keeping one. A sort's result has to keep it.
  if (kind !== 'sort' && !options.maintainOrder) await run('SET preserve_insertion_order = false');
  const on = [options.on]
    .flat()
    .map((name) => `"${name}"`)
    .join(', ');
  const joined = `"left" JOIN "right" USING (${on})`;
  const order = (options.by ?? [])
    .map(column)
    .map(({ column, descending }) => `"${column}" ${descending ? 'DESC' : 'ASC'} NULLS LAST`);
  const limit = options.limit ? ` LIMIT ${options.limit}` : '';
  const variants =
    kind === 'join'
      ? {
          count: () => run(`SELECT count(*) FROM ${joined}`),
          materialize: () =>
            run(
              options.maintainOrder
                ? `CREATE TEMP TABLE result AS SELECT "left".*, "right".* EXCLUDE (${on}) FROM ${joined} ORDER BY "left".rowid, "right".rowid`
                : `CREATE TEMP TABLE result AS SELECT * FROM ${joined}`,
            ),
        }
      : kind === 'unique'
        ? {
            unique: () =>
              run(`CREATE TEMP TABLE result AS SELECT ${on}, any_value(payload) AS payload FROM "table" GROUP BY ALL`),
          }
        : { sort: () => run(`CREATE TEMP TABLE result AS SELECT * FROM "table" ORDER BY ${order.join(', ')}${limit}`) };
  return {
    variants,
    form: 'in-memory tables to a temporary in-memory table (CREATE TEMP TABLE AS)',
    prepare: () => run('DROP TABLE IF EXISTS result'),
    check: async (variant) => {
      if (variant === 'count') return { rows: Number((await rowOf(`SELECT count(*) FROM ${joined}`))[0][0]) };
      const rows = Number((await rowOf('SELECT count(*) FROM result'))[0][0]);
      if (kind === 'join') {
        const [sums] = await rowOf('SELECT sum(left_payload), sum(right_payload) FROM result');
        return { rows, sums: sums.map(Number) };
      }
      if (kind === 'unique') return { rows, sum: Number((await rowOf(`SELECT sum("${options.on}") FROM result`))[0][0]) };
      const names = options.by.map((by) => column(by).column);
      const selected = names.map((name) => (name === 'day' ? `"${name}" - DATE '1970-01-01'` : `"${name}"`)).join(', ');
      const places = exactText.places(rows).join(', ');
      const found = await rowOf(`SELECT ${selected} FROM result WHERE rowid IN (${places}) ORDER BY rowid`);
      return { rows, sample: found.map((values) => values.map(String).join(' ')) };
    },
    close: async () => {
      connection.closeSync();
      instance.closeSync();
    },
  };
}
