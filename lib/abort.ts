/** Abort signals, as calls use them. */
import { readingFor } from './errors.js';

/** What calls ask of a signal: AbortSignals have it. */
export interface Signal {
  readonly aborted: boolean;
  readonly reason: unknown;
  throwIfAborted(): void;
  addEventListener(type: 'abort', listener: () => void): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

/**
 * A caller's signal, of any class: it needs `aborted` and `addEventListener`. Where it has no reason, that is an AbortError; where
 * it throws, that is ERR_OPTION.
 */
export class CallerSignal implements Signal {
  /** What was given to the signal in place of each listener. */
  readonly #heard = new Map<() => void, () => void>();
  /** It has said that it aborts, whatever `aborted` says. */
  #hasAborted = false;

  constructor(private readonly signal: AbortSignal) {}

  get aborted(): boolean {
    return this.#hasAborted || ask(() => this.signal.aborted) === true;
  }

  get reason(): unknown {
    return ask(() => this.signal.reason) ?? new DOMException('This operation was aborted', 'AbortError');
  }

  throwIfAborted(): void {
    if (this.aborted) throw this.reason;
  }

  addEventListener(type: 'abort', listener: () => void): void {
    const hear = () => {
      this.#hasAborted = true;
      listener();
    };
    this.#heard.set(listener, hear);
    ask(() => this.signal.addEventListener(type, hear));
  }

  /** Never throws: the call has ended. */
  removeEventListener(type: 'abort', listener: () => void): void {
    const hear = this.#heard.get(listener);
    this.#heard.delete(listener);
    try {
      if (hear) this.signal.removeEventListener?.(type, hear);
    } catch {}
  }
}

const ask = <T>(question: () => T): T => readingFor('ERR_OPTION', 'Expected an AbortSignal for signal but it threw', question);

/** A signal of a call's own, which aborts with another one, too: for what is not waited for once the call has ended. */
export class OwnSignal implements Signal {
  readonly #listeners = new Set<() => void>();
  #hasEnded = false;

  constructor(private readonly other: Signal | undefined) {}

  get aborted(): boolean {
    return this.#hasEnded || this.other?.aborted === true;
  }

  get reason(): unknown {
    return this.other?.aborted ? this.other.reason : HAS_ENDED;
  }

  throwIfAborted(): void {
    if (this.aborted) throw this.reason;
  }

  addEventListener(type: 'abort', listener: () => void): void {
    this.#listeners.add(listener);
    this.other?.addEventListener(type, listener);
  }

  removeEventListener(type: 'abort', listener: () => void): void {
    this.#listeners.delete(listener);
    this.other?.removeEventListener(type, listener);
  }

  abort(): void {
    this.#hasEnded = true;
    for (const listener of [...this.#listeners]) listener();
  }
}

/** Nobody is told it. An error made at the end would hold what is on the stack then. */
const HAS_ENDED = 'the call has ended';

/** Waits for `promise`, but rejects with the signal's reason as soon as it aborts. */
export async function untilAborted<T>(promise: Promise<T>, signal: Signal): Promise<T> {
  let hear: (() => void) | undefined;
  const aborts = new Promise<void>((resolve) => {
    hear = resolve;
    signal.addEventListener('abort', hear);
  });
  try {
    const result = await Promise.race([promise, aborts]);
    signal.throwIfAborted();
    return result as T;
  } finally {
    if (hear) signal.removeEventListener('abort', hear);
  }
}
