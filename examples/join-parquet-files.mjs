// Joins two Parquet files into a third.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join as pathOf } from 'node:path';
import { fromRows, join, toRows } from 'warpjoin';
import { readTable, writeTable } from 'warpjoin/io';

const folder = await mkdtemp(pathOf(tmpdir(), 'warpjoin-example-'));
const [orders, customers, result] = ['orders', 'customers', 'result'].map((name) => pathOf(folder, `${name}.parquet`));
try {
  await writeTable(
    fromRows([
      { order: 1, customer: 20, total: 9.5 },
      { order: 2, customer: 10, total: 12 },
      { order: 3, customer: 99, total: 1 },
    ]),
    orders,
  );
  await writeTable(
    fromRows([
      { id: 10, name: 'Ada' },
      { id: 20, name: 'Grace' },
    ]),
    customers,
  );

  const joined = await join(await readTable(orders), await readTable(customers), {
    leftOn: 'customer',
    rightOn: 'id',
    how: 'left', // orders without a customer stay, with null for the name
    maintainOrder: 'left',
    select: ['order', 'name', 'total'],
  });
  await writeTable(joined, result);

  for (const { order, name, total } of toRows(await readTable(result))) console.log(order, name, total);
} finally {
  await rm(folder, { recursive: true });
}
