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

/** What record batches of many parts of a table have in common: all but numbers. */
interface Shape {
  readonly own: readonly (Uint8ArrayConstructor | null)[];
  readonly variadic: readonly Uint8ArrayConstructor[];
  readonly children: readonly Shape[];
  readonly dictionary: ForeignData['dictionary'];
}

/** A Data without its buffers. */
export interface Outline {
  readonly shape: Shape;
  /** Where its numbers begin. */
  readonly at: number;
}

/**
 * Outlines of Data, in little memory that garbage collections need not walk through: there may be many thousands. Of a Data they keep what is no buffer:
 * its length, offset and number of nulls, then, for each of its buffers, where it is and how many elements it has.
 */
export class Outlines {
  readonly #numbers: number[] = [];
  #last: Shape | undefined;

  /** The outline of a Data whose buffers go where `place` says: its first byte there. */
  add(data: AnyData, place: (view: ArrayBufferView) => number): Outline {
    const at = this.#numbers.length;
    this.#last = this.#shapeOf(data as ForeignData, place, this.#last);
    return { shape: this.#last, at };
  }

  /** The Data of a type over a buffer that has what the outline's places say, from byte `base` on. */
  dataOver(library: Library, type: arrow.DataType, { shape, at }: Outline, buffer: ArrayBuffer, base: number): arrow.Data {
    const numbers = this.#numbers;
    let next = at;
    const make = (type: arrow.DataType, { own, variadic, children, dictionary }: Shape): arrow.Data => {
      const [length, offset, nullCount] = [numbers[next++]!, numbers[next++]!, numbers[next++]!];
      const view = (Elements: Uint8ArrayConstructor) => new Elements(buffer, numbers[next++]! - base, numbers[next++]!);
      const buffers = own.map((Elements) => Elements && view(Elements)).map((view) => view ?? undefined);
      const variadicBuffers = variadic.map(view);
      const fields = fieldsOf(type) as readonly arrow.Field[];
      const within = fields.map((field, index) => make(field.type, children[index]!));
      const parts = [type, offset, length, nullCount, buffers, within, dictionary, variadicBuffers];
      return new (library.Data as unknown as new (...parts: unknown[]) => arrow.Data)(...parts);
    };
    return make(type, shape);
  }

  /** The shape of a Data, whose numbers go behind those that are there: the one that is known, if it is like that. */
  #shapeOf(data: ForeignData, place: (view: ArrayBufferView) => number, known: Shape | undefined): Shape {
    const { length, offset, _nullCount, dictionary } = data;
    this.#numbers.push(length, offset ?? 0, _nullCount ?? -1);
    const placed = (view: ArrayBufferView): Uint8ArrayConstructor => {
      this.#numbers.push(place(view), (view as Uint8Array).length);
      return view.constructor as Uint8ArrayConstructor;
    };
    const own = ownViews(data).map((view) => view && placed(view));
    const variadic = (data.variadicBuffers ?? []).map((view) => placed(view as ArrayBufferView));
    const children = (data.children ?? []).map((child, index) => this.#shapeOf(child, place, known?.children[index]));
    const isKnown =
      known !== undefined &&
      known.dictionary === dictionary &&
      [own, variadic, children].every((of, index) => {
        const other = [known.own, known.variadic, known.children][index]!;
        return of.length === other.length && of.every((one, at) => one === other[at]);
      });
    return isKnown ? known : { own, variadic, children, dictionary };
  }
}
