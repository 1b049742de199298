/** Items that are waited for only so long: nothing is lost, told twice or out of order. */
import { describe, expect, it } from 'vitest';
import { END, itemsOf, nextOf } from '../../lib/items.js';
import { Arriving } from '../../lib/operators/arriving.js';

/** Items that come when the test gives them, and how often they were ended. */
function given() {
  const waiting: ((item: Promise<number | typeof END>) => void)[] = [];
  let ends = 0;
  const source = itemsOf<number>(
    () => new Promise((resolve) => waiting.push(resolve)),
    () => ends++,
  );
  const give = (item: number | typeof END | Error) =>
    waiting.shift()!(item instanceof Error ? Promise.reject(item) : Promise.resolve(item));
  return { arriving: new Arriving(source), give, asked: () => waiting.length, ends: () => ends };
}

describe('items that are waited for', () => {
  it('come next, where they were given up', async () => {
    const { arriving, give, asked } = given();
    expect(await arriving.within(1)).toBeNull();
    expect(await arriving.within(1)).toBeNull();
    expect(asked()).toBe(1);
    give(5);
    expect(await arriving.within(1000)).toBe(5);
    expect(await arriving.within(1)).toBeNull();
    give(6);
    expect(await nextOf(arriving.items)).toBe(6);
  });

  it('are waited for without an end', async () => {
    const { arriving, give } = given();
    const next = arriving.within(Number.POSITIVE_INFINITY);
    setTimeout(() => give(END), 1);
    expect(await next).toBe(END);
  });

  it('fail whoever waits for them next, and nobody before', async () => {
    const { arriving, give } = given();
    expect(await arriving.within(1)).toBeNull();
    give(new Error('broken'));
    await new Promise(setImmediate); // a rejection that nobody handles would fail the test
    await expect(nextOf(arriving.items)).rejects.toThrow('broken');
  });

  it('end the others', async () => {
    const { arriving, give, ends } = given();
    expect(await arriving.within(1)).toBeNull();
    const ended = arriving.items.return();
    give(7);
    await ended;
    expect(ends()).toBe(1);
    expect(await nextOf(arriving.items)).toBe(END);
  });
});
