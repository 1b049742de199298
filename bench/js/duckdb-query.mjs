// node bench/js/duckdb-query.mjs QUERY: a process that runs a query in DuckDB and nothing else.
import { DuckDBInstance } from '@duckdb/node-api';

const connection = await (await DuckDBInstance.create(':memory:')).connect();
await connection.run(process.argv[2]);
