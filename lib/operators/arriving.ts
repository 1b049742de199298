/** Items that are waited for only so long. */
import { END, type Items, nextOf, type OrEnd } from '../items.js';

/** Those of others. One that was given up waiting for is on its way, and comes next. */
export class Arriving<T> implements Items<T> {
  #coming: Promise<OrEnd<T>> | null = null;

  constructor(private readonly items: Items<T>) {}

  /** The next one; null where none has come within so many milliseconds. */
  async within(milliseconds: number): Promise<OrEnd<T> | null> {
    this.#coming ??= nextOf(this.items);
    const coming = this.#coming;
    coming.catch(() => {}); // who waits for it next is told
    const item = Number.isFinite(milliseconds) ? await firstOf(coming, milliseconds) : await coming;
    if (item !== null && this.#coming === coming) this.#coming = null;
    return item;
  }

  async next(): Promise<IteratorResult<T, undefined>> {
    const coming = this.#coming;
    this.#coming = null;
    if (!coming) return this.items.next();
    const item = await coming;
    return item === END ? { done: true, value: undefined } : { done: false, value: item };
  }

  return(): Promise<IteratorResult<T, undefined>> {
    this.#coming = null;
    return this.items.return();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}

/** What a promise gives, or null, where that takes longer than so many milliseconds. */
async function firstOf<T>(promise: Promise<T>, milliseconds: number): Promise<T | null> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<null>((resolve) => {
    timer = setTimeout(() => resolve(null), milliseconds);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
