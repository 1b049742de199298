/** Items that are waited for only so long. */
import { type Items, itemsOf, nextOf, type OrEnd } from '../items.js';

/** Those of others. One that was given up waiting for is on its way, and comes next. */
export class Arriving<T> {
  readonly items: Items<T>;
  #coming: Promise<OrEnd<T>> | null = null;

  constructor(private readonly source: Items<T>) {
    const end = () => {
      this.#coming = null;
      return source.return();
    };
    this.items = itemsOf(() => this.#take(), end);
  }

  /** The next one; null where none has come within so many milliseconds. */
  async within(milliseconds: number): Promise<OrEnd<T> | null> {
    const coming = this.#take();
    const item = Number.isFinite(milliseconds) ? await firstOf(coming, milliseconds) : await coming;
    if (item === null) {
      this.#coming = coming;
      coming.catch(() => {}); // who waits for it next is told
    }
    return item;
  }

  #take(): Promise<OrEnd<T>> {
    const coming = this.#coming ?? nextOf(this.source);
    this.#coming = null;
    return coming;
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
