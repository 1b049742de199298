// The 100 greatest of a million rows. With a limit the rows are found in one pass, without a sort of all.
import { fromColumns, sort } from 'warpjoin';

const rows = 1_000_000;
const sales = fromColumns({
  id: Int32Array.from({ length: rows }, (_, row) => row),
  total: Float64Array.from({ length: rows }, (_, row) => (row * 7919) % rows),
});

const top = await sort(sales, { by: { column: 'total', descending: true }, limit: 100 });

const totals = top.getChild('total');
console.log(`${top.numRows} rows, from ${totals.get(0)} to ${totals.get(99)}`);
console.log(`algorithm: ${top.stats.algorithm}`);
