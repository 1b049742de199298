/** Record batches of no rows as apache-arrow makes them: data without buffers or children, of any type. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as newest from 'apache-arrow';
import * as oldest from 'apache-arrow-15';
import { afterAll, describe, expect, test } from 'vitest';
import { createEngine, toIPC, toRows } from '../../lib/index.js';
import { readTable, writeBatches } from '../../lib/io/index.js';

const folder = mkdtempSync(join(tmpdir(), 'warpjoin-no-rows-'));
const engine = await createEngine({ device: 'cpu', threads: 2 });
afterAll(async () => {
  await engine.dispose();
  rmSync(folder, { recursive: true, force: true });
});

describe.each(Object.entries({ newest, oldest: oldest as unknown as typeof newest }))(
  'of the %s apache-arrow',
  (version, arrow) => {
    const item = (type: newest.DataType) => new arrow.Field('item', type, true);
    const int = new arrow.Int32();
    const entries = new arrow.Struct([new arrow.Field('key', new arrow.Utf8(), false), new arrow.Field('value', int, true)]);
    const types: Record<string, newest.DataType> = {
      k: int,
      text: new arrow.Utf8(),
      large: new arrow.LargeUtf8(),
      bool: new arrow.Bool(),
      nothing: new arrow.Null(),
      decimal: new arrow.Decimal(2, 10),
      list: new arrow.List(item(new arrow.List(item(int)))),
      two: new arrow.FixedSizeList(2, item(int)),
      map: new arrow.Map_(new arrow.Field('entries', entries, false), false),
      struct: new arrow.Struct([new arrow.Field('list', new arrow.List(item(int)), true)]),
      union: new arrow.DenseUnion([0, 1], [new arrow.Field('int', int, true), new arrow.Field('text', new arrow.Utf8(), true)]),
      dictionary: new arrow.Dictionary(new arrow.Utf8(), new arrow.Int8(), 5),
    };
    const fields = Object.entries(types).map(([name, type]) => new arrow.Field(name, type, true));
    const schema = new arrow.Schema(fields);
    const values = (row: number): Record<string, unknown> => ({
      k: row,
      text: `t${row}`,
      large: `l${row}`,
      bool: row % 2 === 0,
      list: [[row], []],
      two: [row, row],
      map: new Map([['x', row]]),
      struct: { list: [row] },
      dictionary: `d${row}`,
    });
    const ints = () => arrow.makeData({ type: int, length: 3, nullCount: 0, data: Int32Array.of(2, 1, 3) });
    const columns = fields.map(({ name, type }) => {
      if (arrow.DataType.isUnion(type)) {
        const [typeIds, valueOffsets] = [Int8Array.of(0, 0, 0), Int32Array.of(0, 1, 2)];
        const children = [ints(), arrow.makeData({ type: new arrow.Utf8(), length: 0 })];
        return arrow.makeData({ type, length: 3, nullCount: 0, typeIds, valueOffsets, children } as never) as newest.Data;
      }
      const builder = arrow.makeBuilder({ type, nullValues: [null, undefined] });
      for (const row of [2, 1, 3]) builder.append(values(row)[name]);
      return builder.finish().toVector().data[0]!;
    });
    const of = (length: number, children?: newest.Data[]) =>
      new arrow.RecordBatch(
        schema,
        arrow.makeData({ type: new arrow.Struct(fields), length, nullCount: 0, children } as never) as never,
      );
    const full = of(3, columns);
    const none = {
      'without children': of(0),
      'with children without theirs': of(
        0,
        fields.map(({ type }) => arrow.makeData({ type, length: 0, nullCount: 0 } as never) as newest.Data),
      ),
    };
    const rows = toRows(new arrow.Table(schema, [full]));
    const byKey = (some: readonly object[]) => [...(some as { k: number }[])].sort((a, b) => a.k - b.k);

    test.each(Object.entries(none))('%s, before, between and behind others', async (name, batch) => {
      for (const batches of [[batch], [batch, full], [full, batch], [full, batch, full, batch]]) {
        const expected = batches.flatMap(({ numRows }) => (numRows ? rows : []));
        const table = new arrow.Table(schema, batches);
        expect(toRows(await engine.sort(table, { by: 'k' }))).toEqual(byKey(expected));
        const sorted: object[] = [];
        for await (const part of engine.sortBatches(batches, { by: 'k' }))
          sorted.push(...toRows(new arrow.Table(part.schema, [part])));
        expect(sorted).toEqual(byKey(expected));
        let joined = 0;
        for await (const { numRows } of engine.joinBatches(batches, [full], { on: 'k' })) joined += numRows;
        expect(joined).toBe(expected.length);
        for (const format of ['stream', 'file'] as const)
          expect(toRows(newest.tableFromIPC(toIPC(table, { format })))).toEqual(expected);
        for (const format of ['arrow', 'jsonl'] as const) {
          const path = join(folder, `${version}-${name.length}.${format}`);
          expect(await writeBatches(batches, path)).toBe(expected.length);
          if (format === 'arrow') expect(toRows(await readTable(path))).toEqual(expected);
        }
      }
    });
  },
);
