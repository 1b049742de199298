/** Which dictionaries the columns of a result have. */
import type * as arrow from 'apache-arrow';
import { type Library, numbered, withChildTypes } from './library.js';
import { fieldsOf } from './types.js';
import type { Values } from './values.js';

/** Whom a number belongs to. */
interface Owner {
  dictionary: object;
  values: arrow.DataType;
}

/**
 * The columns of a result with a number for each dictionary: inputs may have different ones with the same number, which no table
 * and no Arrow IPC stream may. Columns have the same one where dictionary and type of values are the same objects.
 */
export function distinctDictionaries<C extends { type: arrow.DataType; of: Values }>(
  library: Library,
  columns: readonly C[],
): C[] {
  const owners = new Map<number, Owner>();
  const visit = (type: arrow.DataType, { dictionary, children }: Values): arrow.DataType => {
    if (dictionary) {
      const { id, dictionary: values } = type as arrow.Dictionary;
      const owner: Owner = { dictionary: dictionary.shared ?? dictionary, values };
      const isSame = (other: Owner) => other.dictionary === owner.dictionary && other.values === values;
      const taken = owners.get(id);
      if (!taken || isSame(taken)) {
        owners.set(id, owner);
        return type;
      }
      const other = [...owners].find(([, taken]) => isSame(taken))?.[0] ?? Math.max(...owners.keys()) + 1;
      owners.set(other, owner);
      return numbered(type, other);
    }
    const fields = fieldsOf(type) as readonly arrow.Field[];
    const types = fields.map((field, index) => visit(field.type, children[index]!));
    const same = types.every((child, index) => child === fields[index]!.type);
    return same ? type : withChildTypes(library, type, types);
  };
  return columns.map((column) => {
    const type = visit(column.type, column.of);
    return type === column.type ? column : { ...column, type };
  });
}
