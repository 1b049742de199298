// The latest row of each key: sort by time, then keep the last row of each key.
import { fromRows, sort, toRows, unique } from 'warpjoin';

const readings = fromRows([
  { sensor: 'b', at: new Date('2026-03-01T10:00Z'), value: 4 },
  { sensor: 'a', at: new Date('2026-03-01T12:00Z'), value: 7 },
  { sensor: 'a', at: new Date('2026-03-01T11:00Z'), value: 5 },
  { sensor: 'b', at: new Date('2026-03-01T09:00Z'), value: 3 },
]);

const inOrder = await sort(readings, { by: ['sensor', 'at'] });
const latest = await unique(inOrder, { on: 'sensor', keep: 'last', maintainOrder: true });

for (const { sensor, at, value } of toRows(latest)) console.log(sensor, at, value);
