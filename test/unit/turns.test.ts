/** Which calls of an engine run when. */
import { describe, expect, test } from 'vitest';
import type { NativeEngine } from '../../lib/native.js';
import { Lanes, type Turn, Turns, type When } from '../../lib/turns.js';
import { failure } from '../support/tables.js';

const fakes = (): { made: NativeEngine[]; make: () => NativeEngine } => {
  const made: NativeEngine[] = [];
  return {
    made,
    make: () => {
      const native = { dispose: async () => void made.splice(made.indexOf(native), 1) } as NativeEngine;
      made.push(native);
      return native;
    },
  };
};

/** Calls that end when they are told to, and what happened in which order. */
function calls(most = 2) {
  const lanes = new Lanes(fakes().make, most);
  const turns = new Turns();
  const events: string[] = [];
  const ends = new Map<string, () => void>();
  const given = new Map<string, Turn>();
  const begin = (name: string, when: When = 'beside others', on = lanes, signal?: AbortSignal): Promise<void> =>
    turns.run(on, when, signal, async (turn) => {
      given.set(name, turn);
      events.push(name);
      await new Promise<void>((resolve) => ends.set(name, resolve));
    });
  const end = async (name: string): Promise<void> => {
    ends.get(name)!();
    await settled();
  };
  return { lanes, turns, events, given, begin, end };
}
const settled = () => new Promise((resolve) => setImmediate(resolve));

describe('lanes', () => {
  test('are made when all are busy, and taken from the first on', () => {
    const { made, make } = fakes();
    const lanes = new Lanes(make, 2);
    expect(made).toHaveLength(0);
    const first = lanes.take();
    expect(first).toBe(lanes.first);
    const second = lanes.take();
    expect(made).toEqual([first, second]);
    expect(lanes.take()).toBeNull();
    lanes.giveBack(second!);
    lanes.giveBack(first!);
    expect(lanes.take()).toBe(first);
    expect(made).toHaveLength(2);
  });

  test('that can not be made are done without, but the first is needed', () => {
    const { make } = fakes();
    let refusals = 1;
    const lanes = new Lanes(() => {
      if (refusals-- > 0) throw new Error('no thread');
      return make();
    }, 4);
    expect(() => lanes.take()).toThrow('no thread');
    const first = lanes.take();
    refusals = 1;
    expect(lanes.take()).toBeNull();
    expect(lanes.take()).toBeNull(); // and are not tried again
    lanes.giveBack(first!);
    expect(lanes.take()).toBe(first);
  });

  test('end, the first one last', async () => {
    const { made, make } = fakes();
    const lanes = new Lanes(make, 3);
    for (let i = 0; i < 3; i++) lanes.take();
    const first = lanes.first;
    const order: boolean[] = [];
    for (const native of [...made]) {
      const { dispose } = native;
      native.dispose = () => {
        order.push(native === first);
        return dispose();
      };
    }
    await lanes.dispose();
    expect(order).toEqual([false, false, true]);
    expect(made).toHaveLength(0);
  });
});

describe('turns', () => {
  test('are taken in the order of arrival, as many at once as there are lanes', async () => {
    const { events, begin, end } = calls(2);
    const all = Promise.all(['a', 'b', 'c', 'd'].map((name) => begin(name)));
    await settled();
    expect(events).toEqual(['a', 'b']);
    await end('b');
    expect(events).toEqual(['a', 'b', 'c']);
    await end('c');
    await end('a');
    await end('d');
    await all;
    expect(events).toEqual(['a', 'b', 'c', 'd']);
  });

  test('a call that waits for a lane of one kind does not hold up those for another', async () => {
    const { events, begin, end } = calls(1);
    const others = new Lanes(fakes().make, 1);
    const all = Promise.all([begin('a'), begin('b'), begin('c', 'beside others', others)]);
    await settled();
    expect(events).toEqual(['a', 'c']);
    for (const name of ['a', 'b', 'c']) await end(name);
    await all;
  });

  test('alone: others end before, and begin behind it', async () => {
    const { events, given, begin, end } = calls(4);
    const all = [begin('a'), begin('last', 'alone, last'), begin('c')];
    await settled();
    expect(events).toEqual(['a']);
    all.push(begin('next', 'alone, next'));
    await settled();
    expect(events).toEqual(['a']);
    await end('a');
    expect(events).toEqual(['a', 'next']);
    await end('next');
    expect(events).toEqual(['a', 'next', 'last']);
    await end('last');
    expect(events).toEqual(['a', 'next', 'last', 'c']);
    await end('c');
    await Promise.all(all);
    expect([...given.values()].some(({ isShared }) => isShared)).toBe(false);
  });

  test('know whether another call ran beside them, and what is promised to others', async () => {
    const { given, begin, end } = calls(3);
    const all = [begin('a')];
    await settled();
    const a = given.get('a')!;
    expect(a.isShared).toBe(false);
    all.push(begin('b'));
    await settled();
    const b = given.get('b')!;
    expect([a.isShared, b.isShared]).toEqual([true, true]);
    a.promisedBytes = 5;
    b.promisedBytes = 7;
    expect([a.promisedToOthers, b.promisedToOthers]).toEqual([7, 5]);
    await end('b');
    expect(a.promisedToOthers).toBe(0);
    expect(a.isShared).toBe(true);
    await end('a');
    await Promise.all(all);
  });

  test('an abort ends the wait, also that of a call that would run alone', async () => {
    const { lanes, events, begin, end } = calls(2);
    const [one, two] = [new AbortController(), new AbortController()];
    const first = begin('a');
    const alone = failure(begin('alone', 'alone, last', lanes, one.signal));
    const waiting = failure(begin('b', 'beside others', lanes, two.signal));
    const third = begin('c');
    await settled();
    two.abort('b is not wanted');
    expect(await waiting).toBe('b is not wanted');
    expect(events).toEqual(['a']);
    one.abort('nor is this');
    expect(await alone).toBe('nor is this');
    await settled();
    expect(events).toEqual(['a', 'c']);
    await end('a');
    await end('c');
    await Promise.all([first, third]);
  });

  test('an abort in the moment in which the turn comes gives it on', async () => {
    const { lanes, events, begin, end } = calls(1);
    const controller = new AbortController();
    const first = begin('a');
    await settled();
    const second = failure(begin('b', 'beside others', lanes, controller.signal));
    const third = begin('c');
    // 'b' gets its turn in a microtask; the abort comes before it can go on.
    const ended = end('a');
    controller.abort('too late');
    expect(await second).toBe('too late');
    await ended;
    expect(events).toEqual(['a', 'c']);
    await end('c');
    await Promise.all([first, third]);
  });

  test('a task that fails gives its lane back, and so does a lane that can not be made', async () => {
    const { lanes, turns, events, begin, end } = calls(1);
    const error = await failure(turns.run(lanes, 'beside others', undefined, () => Promise.reject(new Error('in the task'))));
    expect(error.message).toBe('in the task');
    const none = new Lanes(() => {
      throw new Error('no engine');
    }, 1);
    expect((await failure(turns.run(none, 'beside others', undefined, async () => {}))).message).toBe('no engine');
    const next = begin('a');
    await settled();
    expect(events).toEqual(['a']);
    await end('a');
    await next;
  });
});
