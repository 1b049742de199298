/** The buffers of record batches: which there are, and record batches over buffers that were moved. No value is touched. */
import type * as arrow from 'apache-arrow';
import type { Library } from './library.js';
import { fieldsOf } from './types.js';
import type { ForeignData } from './values.js';

/** Those of a Data alone, in the order of its constructor: null where it has none. */
const ownViews = ({ valueOffsets, values, nullBitmap, typeIds }: ForeignData): (ArrayBufferView | null)[] =>
  [valueOffsets, values, nullBitmap, typeIds].map((view) => (ArrayBuffer.isView(view) ? view : null));

/** A Data of a copy of apache-arrow that is known by its type, or of any. */
type AnyData = ForeignData | arrow.Data;

/** All buffers of a Data and of what is within it; those of dictionaries are not. */
export function* viewsOf(given: AnyData): Generator<ArrayBufferView> {
  const data = given as ForeignData;
  for (const view of ownViews(data)) if (view) yield view;
  for (const view of data.variadicBuffers ?? []) if (ArrayBuffer.isView(view)) yield view;
  for (const child of data.children ?? []) yield* viewsOf(child);
}

/** Something for each stretch of memory: several views may be of the same one. */
export class ByStretch<T> {
  readonly #known = new Map<ArrayBufferLike, Map<string, T>>();

  /** What is known of a view's stretch; else what `make` gives, from now on. */
  get(view: ArrayBufferView, make: () => T): T {
    const { buffer, byteOffset, byteLength } = view;
    const known = this.#known.get(buffer) ?? new Map<string, T>();
    this.#known.set(buffer, known);
    const stretch = `${byteOffset} ${byteLength}`;
    const value = known.get(stretch) ?? make();
    known.set(stretch, value);
    return value;
  }
}

/** A buffer somewhere else: elements of this kind from byte `at` on. */
export interface Place {
  readonly Elements: Uint8ArrayConstructor;
  readonly at: number;
  readonly length: number;
}

/** A Data without its buffers. */
export interface Outline {
  readonly data: ForeignData;
  readonly own: readonly (Place | null)[];
  readonly variadic: readonly Place[];
  readonly children: readonly Outline[];
}

/** The outline of a Data whose buffers go where `place` says: its first byte there. Of the Data, that keeps what is no buffer. */
export function outlineOf(given: AnyData, place: (view: ArrayBufferView) => number): Outline {
  const data = given as ForeignData;
  const placed = (view: ArrayBufferView): Place => ({
    Elements: view.constructor as Uint8ArrayConstructor,
    at: place(view),
    length: (view as Uint8Array).length,
  });
  const { length, offset, _nullCount, dictionary } = data;
  return {
    data: { length, offset, _nullCount, dictionary } as ForeignData,
    own: ownViews(data).map((view) => view && placed(view)),
    variadic: (data.variadicBuffers ?? []).map((view) => placed(view as ArrayBufferView)),
    children: (data.children ?? []).map((child) => outlineOf(child, place)),
  };
}

/** The Data of a type over a buffer that has what the outline's places say, from byte `base` on. */
export function dataOver(
  library: Library,
  type: arrow.DataType,
  outline: Outline,
  buffer: ArrayBuffer,
  base: number,
): arrow.Data {
  const { data, own, variadic, children } = outline;
  const view = (place: Place | null) => place && new place.Elements(buffer, place.at - base, place.length);
  const fields = fieldsOf(type) as readonly arrow.Field[];
  return new (library.Data as unknown as new (...parts: unknown[]) => arrow.Data)(
    type,
    data.offset ?? 0,
    data.length,
    data._nullCount ?? -1,
    own.map((place) => view(place) ?? undefined),
    fields.map((field, index) => dataOver(library, field.type, children[index]!, buffer, base)),
    data.dictionary,
    variadic.map(view),
  );
}
