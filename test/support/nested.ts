/** Random columns of every Arrow type, in memory as careless as Arrow allows: gaps, garbage under nulls, children that are too long. */
import * as arrow from 'apache-arrow';

export type Random = (below: number) => number;

const field = (name: string, type: arrow.DataType, nullable = true) =>
  new arrow.Field(name, type, nullable, new Map([['of', name]]));

/** One of each, nested in each other here and there. */
export function everyType(): Record<string, arrow.DataType> {
  const text = new arrow.Dictionary(new arrow.Utf8(), new arrow.Int16());
  const point = new arrow.Struct([
    field('x', new arrow.Int32()),
    field('y', new arrow.Float64()),
    field('name', new arrow.Utf8()),
  ]);
  const entries = (value: arrow.DataType) =>
    new arrow.Field('entries', new arrow.Struct([field('key', new arrow.Utf8(), false), field('value', value)]), false);
  const either = [
    field('i', new arrow.Int32()),
    field('t', new arrow.Utf8()),
    field('l', new arrow.List(field('item', new arrow.Int8()))),
  ];
  return {
    dictionary: text,
    dictionary_int8: new arrow.Dictionary(new arrow.Utf8(), new arrow.Int8()),
    dictionary_uint32: new arrow.Dictionary(new arrow.Int64(), new arrow.Uint32()),
    dictionary_list: new arrow.Dictionary(new arrow.List(field('item', new arrow.Int32())), new arrow.Int32()),
    dictionary_view: new arrow.Dictionary(new arrow.Utf8View(), new arrow.Int32()),
    list: new arrow.List(field('item', new arrow.Int32())),
    list_bool: new arrow.List(field('item', new arrow.Bool())),
    list_text: new arrow.List(field('item', new arrow.Utf8())),
    list_list: new arrow.List(field('item', new arrow.List(field('item', new arrow.Float64())))),
    list_dictionary: new arrow.List(field('item', new arrow.Dictionary(new arrow.Utf8(), new arrow.Int32()))),
    list_dictionary_list: new arrow.List(
      field('item', new arrow.Dictionary(new arrow.List(field('item', new arrow.Int16())), new arrow.Int32())),
    ),
    list_view: new arrow.List(field('item', new arrow.Utf8View())),
    large_list: new arrow.LargeList(field('item', point)),
    fixed_list: new arrow.FixedSizeList(3, field('item', new arrow.Int16())),
    fixed_list_text: new arrow.FixedSizeList(2, field('item', new arrow.LargeUtf8())),
    fixed_list_none: new arrow.FixedSizeList(0, field('item', new arrow.Int16())),
    struct: point,
    struct_deep: new arrow.Struct([
      field('points', new arrow.List(field('item', point))),
      field('flag', new arrow.Bool()),
      field('code', new arrow.Dictionary(new arrow.Utf8(), new arrow.Int8())),
      field('nothing', new arrow.Null()),
    ]),
    struct_none: new arrow.Struct([]),
    map: new arrow.Map_(entries(new arrow.Int32()) as never),
    map_list: new arrow.Map_(entries(new arrow.List(field('item', new arrow.Utf8()))) as never, true),
    sparse: new arrow.SparseUnion([5, 9, 2], either),
    dense: new arrow.DenseUnion([5, 9, 2], either),
    list_dense: new arrow.List(field('item', new arrow.DenseUnion([0, 1, 2], either))),
    text_view: new arrow.Utf8View(),
    binary_view: new arrow.BinaryView(),
    null: new arrow.Null(),
    decimal32: new arrow.Decimal(1, 9, 32),
    decimal64: new arrow.Decimal(2, 18, 64),
    decimal128: new arrow.Decimal(3, 38, 128),
    decimal256: new arrow.Decimal(4, 76, 256),
    fixed_binary: new arrow.FixedSizeBinary(5),
    fixed_binary_none: new arrow.FixedSizeBinary(0),
    list_binary_none: new arrow.List(field('item', new arrow.FixedSizeBinary(0))),
    struct_binary_none: new arrow.Struct([field('b', new arrow.FixedSizeBinary(0)), field('i', new arrow.Int8())]),
    dictionary_binary_none: new arrow.Dictionary(new arrow.FixedSizeBinary(0), new arrow.Int8()),
    interval_months: new arrow.IntervalYearMonth(),
    interval_days: new arrow.IntervalDayTime(),
    interval_nanos: new arrow.IntervalMonthDayNano(),
    half: new arrow.Float16(),
  };
}

const words = ['', 'a', 'ab', 'twelve bytes', 'thirteen byte', 'a text of more than the twelve bytes of a view', 'ö€𐍈'];

/** `length` random values. Dictionaries are given, or made anew. */
export function randomData(type: arrow.DataType, length: number, random: Random, dictionary?: arrow.Vector): arrow.Data {
  const offset = random(2) * random(11);
  // Before it there are values that belong to none.
  const before = offset;
  const total = before + length;
  const nulls = random(3) > 0;
  const nullBitmap = new Uint8Array(Math.ceil((total + 1) / 8)).map(() => random(256) | random(256));
  const validity = nulls && !arrow.DataType.isUnion(type) ? { nullBitmap, nullCount: -1 } : { nullCount: 0 };
  const bytes = (count: number) => Uint8Array.from({ length: count }, () => random(256));
  const make = (parts: object, at = offset): arrow.Data =>
    arrow.makeData({ type, length, offset: at, ...validity, ...parts } as never);
  const offsets = (Offsets: Int32ArrayConstructor | BigInt64ArrayConstructor, most: number, of: readonly number[]) => {
    const found = [random(3) * most];
    for (const size of of) found.push(found.at(-1)! + size);
    return {
      end: found.at(-1)!,
      offsets: Offsets === Int32Array ? Int32Array.from(found) : BigInt64Array.from(found.map(BigInt)),
    };
  };
  const texts = Array.from({ length }, () => Buffer.from(words[random(words.length)]!));

  if (arrow.DataType.isNull(type)) return arrow.makeData({ type, length } as never);
  if (arrow.DataType.isBool(type)) return make({ data: bytes(Math.ceil((total + 1) / 8)) });
  if (arrow.DataType.isDictionary(type)) {
    const values = dictionary ?? randomDictionary(type, random);
    const indices = Array.from({ length }, (_, row) => {
      const valid = !nulls || ((nullBitmap[(offset + row) >> 3]! >> ((offset + row) & 7)) & 1) === 1;
      // Under a null there may be any index.
      return valid ? random(values.length) : random(2) * 127;
    });
    return make({ data: (type.indices.ArrayType as Int32ArrayConstructor).from(indices as never), dictionary: values });
  }
  const large = arrow.DataType.isLargeUtf8(type) || arrow.DataType.isLargeBinary(type);
  if (large || arrow.DataType.isUtf8(type) || arrow.DataType.isBinary(type)) {
    const { offsets: valueOffsets } = offsets(
      large ? BigInt64Array : Int32Array,
      3,
      texts.map((text) => text.length),
    );
    return make({ valueOffsets, data: Buffer.concat([bytes(Number(valueOffsets[0])), ...texts, bytes(2)]) });
  }
  if (arrow.DataType.isUtf8View(type) || arrow.DataType.isBinaryView(type)) {
    const buffers: Buffer[] = [Buffer.from('before')];
    const views = Buffer.alloc(length * 16);
    for (const [row, text] of texts.entries()) {
      views.writeInt32LE(text.length, row * 16);
      if (text.length <= 12) text.copy(views, row * 16 + 4);
      else {
        if (random(4) === 0) buffers.push(Buffer.alloc(0));
        const last = buffers.length - 1;
        text.copy(views, row * 16 + 4, 0, 4);
        views.writeInt32LE(last, row * 16 + 8);
        views.writeInt32LE(buffers[last]!.length, row * 16 + 12);
        buffers[last] = Buffer.concat([buffers[last]!, text]);
      }
    }
    // apache-arrow 21 writes no IPC of views with an offset.
    return make({ views, variadicBuffers: buffers }, 0);
  }
  if (type.typeId === arrow.Type.List || type.typeId === arrow.Type.Map || type.typeId === arrow.Type.LargeList) {
    const Offsets = type.typeId === arrow.Type.LargeList ? BigInt64Array : Int32Array;
    const { offsets: valueOffsets, end } = offsets(
      Offsets,
      4,
      texts.map(() => random(2) * random(5)),
    );
    return make({ valueOffsets, child: childData(type.children[0]!, end + random(3), random) });
  }
  if (arrow.DataType.isFixedSizeList(type))
    return make({ child: childData(type.children[0]!, length * type.listSize + random(3), random) });
  if (arrow.DataType.isStruct(type))
    return make({ children: type.children.map((child) => childData(child, length + random(2), random)) });
  if (arrow.DataType.isUnion(type)) {
    const ids = Int8Array.from({ length }, () => type.typeIds[random(type.typeIds.length)]!);
    if (arrow.DataType.isSparseUnion(type)) {
      return make({ typeIds: ids, children: type.children.map((child) => childData(child, length + random(2), random)) }, 0);
    }
    const sizes = type.children.map(() => 1 + random(length + 1));
    const valueOffsets = Int32Array.from(ids, (id) => random(sizes[type.typeIds.indexOf(id)]!));
    return make(
      { typeIds: ids, valueOffsets, children: type.children.map((child, index) => childData(child, sizes[index]!, random)) },
      0,
    );
  }
  const { stride } = new arrow.Data(type, 0, 0, 0);
  const Elements = type.ArrayType as Uint8ArrayConstructor;
  const data = new Elements(bytes(length * stride * Elements.BYTES_PER_ELEMENT).buffer);
  return make({ data });
}

/** Of a child that is not nullable, without nulls. */
function childData(child: arrow.Field, length: number, random: Random): arrow.Data {
  const data = randomData(child.type, length, random);
  if (child.nullable || child.type.children?.length) return data.nullBitmap && !child.nullable ? withoutNulls(data) : data;
  return withoutNulls(data);
}

function withoutNulls(data: arrow.Data): arrow.Data {
  const buffers = [data.valueOffsets, data.values, undefined, data.typeIds];
  return new arrow.Data(
    data.type,
    0,
    data.length,
    0,
    buffers as never,
    data.children as never,
    data.dictionary,
    data.variadicBuffers,
  );
}

/** A dictionary of one chunk or two, with a null and a value twice by chance. */
export function randomDictionary({ dictionary }: arrow.Dictionary, random: Random): arrow.Vector {
  return new arrow.Vector(Array.from({ length: 1 + random(2) }, () => randomData(dictionary, 1 + random(8), random)));
}

/** A table of these columns behind an `id`, in batches of these lengths. Dictionaries differ by batch in all but every third column. */
export function randomTable(
  types: Record<string, arrow.DataType>,
  ids: readonly number[],
  lengths: readonly number[],
  random: Random,
): arrow.Table {
  const fields = [field('id', new arrow.Int32()), ...Object.entries(types).map(([name, type]) => field(name, type))];
  const schema = new arrow.Schema(fields, new Map([['table', 'random']]));
  const shared = new Map<arrow.Field, arrow.Vector>();
  let begin = 0;
  const batches = lengths.map((length) => {
    const id = arrow.makeData({ type: new arrow.Int32(), length, data: Int32Array.from(ids.slice(begin, begin + length)) });
    begin += length;
    const children = fields.slice(1).map((field, index) => {
      if (!arrow.DataType.isDictionary(field.type) || index % 3 > 0) return randomData(field.type, length, random);
      if (!shared.has(field)) shared.set(field, randomDictionary(field.type, random));
      return randomData(field.type, length, random, shared.get(field)!);
    });
    const type = new arrow.Struct(fields);
    return new arrow.RecordBatch(schema, arrow.makeData({ type, length, nullCount: 0, children: [id, ...children] }));
  });
  return new arrow.Table(schema, batches);
}

/** A value as JSON would have it, whatever its type. */
export function plainValue(value: unknown): unknown {
  if (value === undefined) return null;
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value === 'number' && !Number.isFinite(value)) return `${value}`;
  if (ArrayBuffer.isView(value)) return Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('hex');
  if (value instanceof Date) return value.toISOString();
  if (typeof value !== 'object' || value === null) return value;
  const { typeId } = ((value as { type?: { typeId?: number } }).type ?? {}) as { typeId?: number };
  if (typeof typeId === 'number' && 'get' in value) return Array.from(value as unknown as Iterable<unknown>, plainValue);
  const entries = [...(value as unknown as Iterable<[string, unknown]>)].map(([key, part]) => [key, plainValue(part)]);
  return Object.fromEntries(entries);
}

/** Rows as plain objects, nested values too. */
export function plainRows(of: arrow.Table): Record<string, unknown>[] {
  const names = of.schema.fields.map(({ name }) => name);
  const vectors = names.map((name) => of.getChild(name)!);
  return Array.from({ length: of.numRows }, (_, row) =>
    Object.fromEntries(names.map((name, column) => [name, plainValue(vectors[column]!.get(row))])),
  );
}
