/** What files state of themselves. */
import type { Schema } from 'apache-arrow';
import { outlineArrow } from './arrow.js';
import type { OpenInput } from './inputs.js';
import { outlineParquet } from './parquet.js';

/** The columns and the number of rows of a plain Arrow or Parquet file; undefined for others, which have to be read for that. */
export async function stated(
  { path, format }: OpenInput,
  signal?: AbortSignal,
): Promise<{ schema: Schema; rows: number } | undefined> {
  if (path && format === 'arrow') return outlineArrow(path, signal);
  if (path && format === 'parquet') return outlineParquet(path, signal);
  return undefined;
}
