/** Abort signals, as calls use them. */
import { describe, expect, it } from 'vitest';
import { CallerSignal, OwnSignal, type Signal, untilAborted } from '../../lib/abort.js';

/** How often a signal has told a listener that it aborts. */
function heardOf(signal: Signal): { times: number } {
  const heard = { times: 0 };
  signal.addEventListener('abort', () => heard.times++);
  return heard;
}

describe("a call's own signal", () => {
  it('aborts by itself, with no word to the other one', () => {
    const other = new AbortController();
    const own = new OwnSignal(other.signal);
    const heard = heardOf(own);
    expect([own.aborted, heard.times]).toEqual([false, 0]);
    own.throwIfAborted();
    own.abort();
    expect([own.aborted, heard.times, other.signal.aborted]).toEqual([true, 1, false]);
    expect(own.reason).toBe('the call has ended');
    expect(() => own.throwIfAborted()).toThrow('the call has ended');
  });

  it('aborts with the other one, for its reason', () => {
    const other = new AbortController();
    const own = new OwnSignal(other.signal);
    const heard = heardOf(own);
    other.abort('changed my mind');
    expect([own.aborted, own.reason, heard.times]).toEqual([true, 'changed my mind', 1]);
  });

  it('tells a listener nothing that was removed', () => {
    const other = new AbortController();
    const own = new OwnSignal(other.signal);
    let times = 0;
    const hear = () => times++;
    own.addEventListener('abort', hear);
    own.removeEventListener('abort', hear);
    own.abort();
    other.abort();
    expect(times).toBe(0);
  });

  it('needs no other one', async () => {
    const own = new OwnSignal(undefined);
    const never = untilAborted(new Promise(() => {}), own);
    own.abort();
    await expect(never).rejects.toBe('the call has ended');
  });
});

describe('what is waited for until a signal aborts', () => {
  it('is given, and its signal let go', async () => {
    const listeners = new Set<() => void>();
    const signal: Signal = {
      aborted: false,
      reason: undefined,
      throwIfAborted: () => {},
      addEventListener: (_, listener) => listeners.add(listener),
      removeEventListener: (_, listener) => listeners.delete(listener),
    };
    expect(await untilAborted(Promise.resolve(3), signal)).toBe(3);
    expect(listeners.size).toBe(0);
  });
});

describe("a caller's signal", () => {
  it('of any class has aborted once it has said so', () => {
    let tell = () => {};
    const given = { aborted: false, addEventListener: (_: string, listener: () => void) => (tell = listener) };
    const signal = new CallerSignal(given as unknown as AbortSignal);
    const heard = heardOf(signal);
    tell();
    expect([signal.aborted, heard.times]).toEqual([true, 1]);
    expect(signal.reason).toMatchObject({ name: 'AbortError' });
  });

  it('that throws is told as the option', () => {
    const signal = new CallerSignal({
      get aborted(): boolean {
        throw new Error('no such thing');
      },
    } as AbortSignal);
    expect(() => signal.throwIfAborted()).toThrow(
      expect.objectContaining({ code: 'ERR_OPTION', message: expect.stringContaining('no such thing') }),
    );
  });
});
