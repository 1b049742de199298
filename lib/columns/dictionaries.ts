/** Which dictionaries the columns of a result have. */
import type * as arrow from 'apache-arrow';
import { type Library, renumbered, withChildTypes } from './library.js';
import { fieldsOf } from './types.js';
import type { Values } from './values.js';

/** Whom a number belongs to. */
interface Owner {
  dictionary: object;
  /** The type of its values, as it came, and with numbers for the dictionaries within. */
  values: arrow.DataType;
  numbered: arrow.DataType;
}

/**
 * The columns of a result with a number for each dictionary, also for those within the values of others: inputs may have different
 * ones with the same number, which no table and no Arrow IPC stream may. Columns have the same one where dictionary and type of
 * values are the same objects.
 */
export function distinctDictionaries<C extends { type: arrow.DataType; of: Values }>(
  library: Library,
  columns: readonly C[],
): C[] {
  const owners = new Map<number, Owner>();
  const visit = (type: arrow.DataType, { dictionary, children }: Values): arrow.DataType => {
    if (dictionary) {
      const { id, dictionary: values } = type as arrow.Dictionary;
      const own = dictionary.shared ?? dictionary;
      const known = [...owners].find(([, owner]) => owner.dictionary === own && owner.values === values);
      if (known) return renumbered(type as arrow.Dictionary, known[0], known[1].numbered);
      const numbered = visit(values, dictionary.values);
      const number = owners.has(id) ? Math.max(...owners.keys()) + 1 : id;
      owners.set(number, { dictionary: own, values, numbered });
      return renumbered(type as arrow.Dictionary, number, numbered);
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
