// What the engines' results are compared by: row counts, payload sums, and the keys at some places of a sorted table.

const sampled = 1000;

export const exactText = {
  /** Row numbers spread over the table, its first and last row among them. */
  places: (rows) => [...new Set(Array.from({ length: sampled }, (_, i) => Math.floor((i * (rows - 1)) / (sampled - 1))))],

  /** The sort keys at those places, in the shortest text that gives each number back. */
  sample(table, by) {
    const columns = by.map((key) => table.getChild(typeof key === 'string' ? key : key.column));
    return exactText.places(table.numRows).map((row) => columns.map((column) => String(raw(column, row))).join(' '));
  },

  /** Sum of an int64 column of values below 2^32, rounded once. */
  sum(vector) {
    let sum = 0n;
    for (const { values, length } of vector.data) {
      const words = new Uint32Array(values.buffer, values.byteOffset, 2 * length);
      for (let begin = 0; begin < words.length; begin += 2 ** 21) {
        let part = 0;
        for (let i = begin; i < Math.min(words.length, begin + 2 ** 21); i += 2) part += words[i];
        sum += BigInt(part);
      }
    }
    return Number(sum);
  },
};

/** Dates as their days, where Arrow's getter gives milliseconds. */
function raw(column, row) {
  const dateType = 8;
  if (column.type.typeId !== dateType) return column.get(row);
  let at = row;
  for (const { values, length } of column.data) {
    if (at < length) return values[at];
    at -= length;
  }
  return undefined;
}
