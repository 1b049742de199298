/** About how much memory rows take, by the types of their columns. */
import type { Schema } from 'apache-arrow';
import { type TypeInfo, typeInfo } from './types.js';

/** What a value of no fixed width is about in memory, and what says where it lies. */
const TEXT_BYTES = 16;

/** About the bytes of a value in memory. */
function valueBytes({ kind, width, children }: TypeInfo): number {
  const within = children.reduce((sum, child) => sum + valueBytes(child), 0);
  switch (kind) {
    case 'fixed':
      return width;
    case 'boolean':
      return 1 / 8;
    case 'fixed_list':
      return width * within;
    case 'null':
    case 'struct':
      return within;
    default:
      return TEXT_BYTES + within;
  }
}

/** About the bytes of a row in memory; 0 for columns of unknown types. */
export const rowBytes = ({ fields }: Schema): number =>
  fields.reduce((sum, { type }) => {
    const info = typeInfo(type);
    return sum + (info ? valueBytes(info) : 0);
  }, 0);
