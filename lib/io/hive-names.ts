/** Names of folders as Hive gives them, country=DE/year=2024: a column, and its value in all rows of the files there. */

/** The value of null. */
const NULL = '__HIVE_DEFAULT_PARTITION__';

/** The name of the folder of a column's value, whose characters that paths and patterns of files use are escaped as in URLs. */
export const hiveFolder = (column: string, value: string | null): string =>
  `${escaped(column)}=${value === null ? NULL : escaped(value)}`;

/** The values in the names of the folders on a path, by their columns. A column that is there twice has the value further in. */
export function hiveValues(path: string): Map<string, string | null> {
  const values = new Map<string, string | null>();
  for (const folder of path.split('/').slice(0, -1)) {
    const [, column, value] = /^([^=]+)=(.*)$/su.exec(folder) ?? [];
    if (column !== undefined) values.set(unescaped(column), value === NULL ? null : unescaped(value!));
  }
  return values;
}

const escaped = (text: string): string =>
  text === NULL
    ? NULL.replaceAll('_', '%5F')
    : encodeURIComponent(text).replace(/[!'()*~]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);

/** What is no escape of a URL stays as it is. */
function unescaped(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
