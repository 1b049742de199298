/**
 * What comes over time, held by nobody but whoever has taken it. A suspended generator keeps what it gave last, and all that its
 * variables had on the way there; a call of next() that has ended keeps nothing (docs/decisions/0028).
 */

/** An iterator whose items are asked for one by one; `return` ends it early. Those asked for at once are made one after the other. */
export interface Items<T> extends AsyncIterableIterator<T, undefined> {
  return(): Promise<IteratorResult<T, undefined>>;
}

/** In place of an item: there are no more. */
export const END = Symbol('end');
export type OrEnd<T> = T | typeof END;

class Made<T> implements Items<T> {
  #last: Promise<void> = Promise.resolve();
  #ended = false;

  constructor(
    private readonly make: () => OrEnd<T> | Promise<OrEnd<T>>,
    private readonly end: () => unknown,
  ) {}

  next(): Promise<IteratorResult<T, undefined>> {
    return this.#behind(() => this.#next());
  }

  return(): Promise<IteratorResult<T, undefined>> {
    return this.#behind(() => this.#end());
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async #next(): Promise<IteratorResult<T, undefined>> {
    if (this.#ended) return { done: true, value: undefined };
    try {
      const item = await this.make();
      if (item !== END) return { done: false, value: item };
    } catch (error) {
      await this.#end();
      throw error;
    }
    return this.#end();
  }

  async #end(): Promise<IteratorResult<T, undefined>> {
    if (!this.#ended) {
      this.#ended = true;
      await this.end();
    }
    return { done: true, value: undefined };
  }

  #behind<R>(task: () => Promise<R>): Promise<R> {
    const made = this.#last.then(task);
    this.#last = made.then(ignore, ignore);
    return made;
  }
}
const ignore = (): void => {};

/** Items that `make` gives, one a call. `end` is called once: at the end, after an error, or early. */
export const itemsOf = <T>(make: () => OrEnd<T> | Promise<OrEnd<T>>, end: () => unknown = ignore): Items<T> =>
  new Made(make, end);

/** Those of an iterable. It is asked for its iterator with the first one. */
export function itemsIn<T>(iterable: Iterable<T> | AsyncIterable<T>): Items<T> {
  let iterator: AsyncIterator<T, unknown> | Iterator<T, unknown> | undefined;
  const open = () =>
    Symbol.asyncIterator in iterable ? iterable[Symbol.asyncIterator]() : (iterable as Iterable<T>)[Symbol.iterator]();
  let ended = false;
  return itemsOf(
    async () => {
      iterator ??= open();
      ended = true; // an iterator that throws has ended
      const { done, value } = await iterator.next();
      if (done) return END;
      ended = false;
      return (await value) as T; // iterables of promises, as for await takes them
    },
    () => (ended ? undefined : iterator?.return?.()),
  );
}

/** Those of what opens with the first one. */
export function itemsLater<T>(open: () => Items<T> | Promise<Items<T>>): Items<T> {
  let items: Items<T> | undefined;
  return itemsOf(
    async () => {
      items ??= await open();
      return nextOf(items);
    },
    () => items?.return(),
  );
}

/** The next one. */
export async function nextOf<T>(items: Items<T>): Promise<OrEnd<T>> {
  const { done, value } = await items.next();
  return done ? END : value;
}

/** One that was taken of some, and those behind it. */
export function behind<T>(first: T, rest: Items<T>): Items<T> {
  let waiting: [T] | [] = [first];
  return itemsOf(
    () => {
      const [item] = waiting;
      if (waiting.length === 0) return nextOf(rest);
      waiting = [];
      return item as T;
    },
    () => rest.return(),
  );
}

/** What `change` makes of each. */
export const mapped = <T, Other>(items: Items<T>, change: (item: T) => Other | Promise<Other>): Items<Other> =>
  itemsOf(
    async () => {
      const item = await nextOf(items);
      return item === END ? END : change(item);
    },
    () => items.return(),
  );

/** The same ones. Where they throw, that is what `told` makes of it. */
export const rethrown = <T>(items: Items<T>, told: (error: unknown) => unknown): Items<T> =>
  itemsOf(
    async () => {
      try {
        return await nextOf(items);
      } catch (error) {
        throw told(error);
      }
    },
    () => items.return(),
  );

/** The same ones, each of which is asked for when the one before it is given. Ended early, they don't wait for it: it may never come. */
export function ahead<T>(items: Items<T>): Items<T> {
  let coming: Promise<OrEnd<T>> | undefined;
  return itemsOf(
    async () => {
      const item = await (coming ?? nextOf(items));
      coming = undefined;
      if (item !== END) {
        coming = nextOf(items);
        coming.catch(ignore); // who asks for it is told
      }
      return item;
    },
    () => {
      const ended = items.return();
      if (!coming) return ended;
      ended.catch(ignore);
    },
  );
}

/** Calls `use` with each, and waits for it before the next one is asked for. Ends them in any case. */
export async function eachIn<T>(items: Items<T>, use: (item: T) => unknown): Promise<void> {
  try {
    while (await useNext(items, use));
  } finally {
    await items.return();
  }
}

// What has the item ends before the next one is made.
async function useNext<T>(items: Items<T>, use: (item: T) => unknown): Promise<boolean> {
  const item = await nextOf(items);
  if (item === END) return false;
  await use(item);
  return true;
}

/** Has an item until it is taken. A generator that yields boxes keeps empty ones. */
export class Box<T> {
  #item: T | undefined;

  constructor(item: T) {
    this.#item = item;
  }

  take(): T {
    const item = this.#item as T;
    this.#item = undefined;
    return item;
  }

  /** Puts what `change` makes of the item in its place. */
  change(change: (item: T) => T): this {
    this.#item = change(this.#item as T);
    return this;
  }
}

/** What a generator that has items on its way gives in place of them. */
export type Boxes<T, Result = void> = AsyncGenerator<Box<T>, Result>;

/** What `make` gives, in a box: no variable of the caller has it. */
export const boxed = async <T>(make: () => T | Promise<T>): Promise<Box<T>> => new Box(await make());

/** Items that a generator gives boxes of. */
export const unboxed = <T>(boxes: Boxes<T>): Items<T> =>
  itemsOf(
    async () => {
      const { done, value } = await boxes.next();
      return done ? END : value.take();
    },
    () => boxes.return(undefined),
  );

/** Boxes of items: for a generator to yield. */
export async function* boxesOf<T>(items: Items<T>): Boxes<T> {
  const next = async () => {
    const item = await nextOf(items);
    return item === END ? null : new Box(item);
  };
  try {
    for (let box = await next(); box; box = await next()) yield box;
  } finally {
    await items.return();
  }
}
