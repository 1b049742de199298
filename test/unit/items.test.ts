/** Items that come over time, and that nobody holds but who has taken them. */
import { setTimeout } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import {
  ahead,
  Box,
  type Boxes,
  behind,
  boxed,
  boxesOf,
  END,
  eachIn,
  type Items,
  itemsIn,
  itemsLater,
  itemsOf,
  mapped,
  nextOf,
  rethrown,
  unboxed,
} from '../../lib/items.js';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** Items of numbers from 0 on, and how often they were ended. */
function counting(most: number): { items: Items<number>; ends: () => number } {
  let [next, ends] = [0, 0];
  const items = itemsOf(
    () => (next < most ? next++ : END),
    () => ends++,
  );
  return { items, ends: () => ends };
}

async function all<T>(items: Items<T>): Promise<T[]> {
  const taken: T[] = [];
  await eachIn(items, (item) => taken.push(item));
  return taken;
}

describe('items', () => {
  it('come in order, and end once', async () => {
    const { items, ends } = counting(3);
    expect(await all(items)).toEqual([0, 1, 2]);
    expect(await nextOf(items)).toBe(END);
    await items.return();
    expect(ends()).toBe(1);
  });

  it('that are asked for at once are made one after the other', async () => {
    let [running, next] = [0, 0];
    const items = itemsOf(async () => {
      expect(++running).toBe(1);
      await setTimeout(1);
      running--;
      return next < 3 ? next++ : END;
    });
    const asked = await Promise.all([1, 2, 3, 4].map(() => nextOf(items)));
    expect(asked).toEqual([0, 1, 2, END]);
  });

  it('end early, behind the one that is being made', async () => {
    const { items, ends } = counting(3);
    const [first, ended, second] = await Promise.all([nextOf(items), items.return(), nextOf(items)]);
    expect([first, ended.done, second, ends()]).toEqual([0, true, END, 1]);
  });

  it('end with what is thrown', async () => {
    let ends = 0;
    const items = itemsOf<number>(
      () => Promise.reject(new Error('broken')),
      () => ends++,
    );
    await expect(nextOf(items)).rejects.toThrow('broken');
    expect([await nextOf(items), ends]).toEqual([END, 1]);
  });

  it('end with another error in place of it', async () => {
    let ends = 0;
    const broken = itemsOf<number>(
      () => Promise.reject(new Error('broken')),
      () => ends++,
    );
    const items = rethrown(broken, (cause) => new Error('the table is no good', { cause }));
    await expect(nextOf(items)).rejects.toMatchObject({ message: 'the table is no good', cause: { message: 'broken' } });
    expect([await nextOf(items), ends]).toEqual([END, 1]);
    const { items: numbers, ends: endsOf } = counting(2);
    expect(await all(rethrown(numbers, () => expect.fail('nothing was thrown')))).toEqual([0, 1]);
    expect(endsOf()).toBe(1);
  });

  it('of an iterable are asked for one by one, and end it', async () => {
    const seen: string[] = [];
    function* given() {
      try {
        for (const each of ['a', 'b', 'c']) {
          seen.push(each);
          yield Promise.resolve(each);
        }
      } finally {
        seen.push('end');
      }
    }
    const items = itemsIn(given());
    expect(seen).toEqual([]);
    expect([await nextOf(items), await nextOf(items)]).toEqual(['a', 'b']);
    await items.return();
    expect(seen).toEqual(['a', 'b', 'end']);
    expect(await all(itemsIn([1, 2]))).toEqual([1, 2]);
  });

  it('of what opens later open with the first one', async () => {
    let opened = 0;
    const { items, ends } = counting(2);
    const later = itemsLater(() => {
      opened++;
      return items;
    });
    expect(opened).toBe(0);
    expect(await all(later)).toEqual([0, 1]);
    expect([opened, ends()]).toEqual([1, 1]);
    await itemsLater(() => expect.fail('never asked for')).return();
  });

  it('are changed, and put behind others', async () => {
    const { items, ends } = counting(3);
    const squares = mapped(behind(-1, items), async (item) => item * item);
    expect(await all(squares)).toEqual([1, 0, 1, 4]);
    expect(ends()).toBe(1);
  });

  it('are asked for ahead, one at a time', async () => {
    let next = 0;
    const items = itemsOf(async () => {
      await setTimeout(1);
      if (next === 3) throw new Error('torn');
      return next++;
    });
    const early = ahead(items);
    expect(next).toBe(0);
    expect(await nextOf(early)).toBe(0);
    await setTimeout(20);
    expect(next).toBe(2); // and not 3
    expect([await nextOf(early), await nextOf(early)]).toEqual([1, 2]);
    await setTimeout(20);
    await expect(nextOf(early)).rejects.toThrow('torn');
    expect(await nextOf(early)).toBe(END);
  });

  it('that were asked for ahead are not waited for at an early end', async () => {
    let [next, ends] = [0, 0];
    let come = (_: number) => {};
    const items = itemsOf(
      () => (next++ === 0 ? 0 : new Promise<number>((resolve) => (come = resolve))),
      () => ends++,
    );
    const early = ahead(items);
    expect(await nextOf(early)).toBe(0);
    await early.return();
    expect(ends).toBe(0);
    come(1);
    await setTimeout(1);
    expect(ends).toBe(1);
  });

  it('are ended by whoever fails with one', async () => {
    const { items, ends } = counting(3);
    const failing = eachIn(items, (item) => (item === 1 ? Promise.reject(new Error('full')) : undefined));
    await expect(failing).rejects.toThrow('full');
    expect(ends()).toBe(1);
  });

  it('go through boxes', async () => {
    const { items, ends } = counting(3);
    async function* twice(): Boxes<number> {
      for await (const box of boxesOf(items)) yield box.change((item) => 2 * item);
      yield boxed(() => 100);
      yield new Box(-1);
    }
    expect(await all(unboxed(twice()))).toEqual([0, 2, 4, 100, -1]);
    expect(ends()).toBe(1);
  });

  it('are held by nobody once they were taken', async () => {
    const made: WeakRef<object>[] = [];
    const make = (): object => {
      const item = { bytes: new Uint8Array(8) };
      made.push(new WeakRef(item));
      return item;
    };
    async function* generated(): Boxes<object> {
      for (;;) {
        const box = await boxed(async () => make());
        yield box;
      }
    }
    const source = itemsOf(async () => make());
    const chain = mapped(behind(make(), unboxed(boxesOf(mapped(source, async (item) => item)))), (item) => item);
    const held = async (items: Items<object>): Promise<number> => {
      made.length = 0;
      for (let taken = 0; taken < 3; taken++) await nextOf(items);
      await setTimeout(1);
      collect();
      expect(made.length).toBeGreaterThan(1);
      return made.filter((item) => item.deref() !== undefined).length;
    };
    expect(await held(unboxed(generated()))).toBe(0);
    expect(await held(chain)).toBe(0);
    async function* plain(): AsyncGenerator<object> {
      for (;;) {
        const item = make();
        yield item;
      }
    }
    expect(await held(itemsIn(plain()))).toBe(1);
  });
});
