/** The rows of a file, without a table of them. */
import { outlineArrow, scanArrow } from './arrow.js';
import { readCsv, scanCsv } from './csv.js';
import { STANDARD } from './formats.js';
import { openInput } from './inputs.js';
import { countNdjson, readJson } from './json.js';
import type { ReadSettings } from './options.js';
import { countParquet } from './parquet.js';
import { csvOptions } from './read.js';
import { statInput } from './sources.js';
import { spooled } from './spool.js';

/** Counts rows; those of Arrow and Parquet files are stated in them. Throws ERR_FILE. */
export async function countRows(
  path: string,
  settings: ReadSettings,
  signal: AbortSignal,
  onProgress: (fraction: number | undefined) => void,
): Promise<number> {
  const opened = await openInput(path, settings.format, signal);
  const { format, source } = opened;
  switch (format) {
    case 'arrow':
      return opened.path ? (await outlineArrow(opened.path, signal)).rows : countBatches(scanArrow(source, {}, signal));
    case 'parquet': {
      if (opened.path) return countParquet(opened.path, signal);
      await using file = await spooled(source);
      return await countParquet(file.path, signal).catch((error) => {
        throw file.renamed(error);
      });
    }
    case 'csv':
    case 'tsv': {
      const options = csvOptions(format, settings);
      if (path === STANDARD || !(await statInput(path)).isFile()) return (await readCsv(source, options, signal)).numRows;
      // Text has room for any value, so that one pass over the file does.
      const { schema } = await readCsv(source, { ...options, maxRows: 1 }, signal);
      const types = Object.fromEntries(schema.fields.map(({ name }) => [name, 'utf8' as const]));
      const again = await openInput(path, settings.format, signal);
      return countBatches(scanCsv(again.source, { ...options, types }, signal), () => onProgress(again.source.progress()));
    }
    case 'ndjson':
      return countNdjson(source, signal, onProgress);
    case 'json':
      return (await readJson(source, { onProgress }, signal)).numRows;
  }
}

async function countBatches(batches: AsyncIterable<{ numRows: number }>, afterEach = () => {}): Promise<number> {
  let rows = 0;
  for await (const { numRows } of batches) {
    rows += numRows;
    afterEach();
  }
  return rows;
}
