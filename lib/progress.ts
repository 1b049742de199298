/** How far calls are. */
import type { Progress } from './options.js';

const INTERVAL_MS = 50;

/** Tells a call's callback about every 50 ms how far the call is: never less than before, and 1 at its end alone. */
export class Reporting {
  #fraction = 0;
  #thrown: { error: unknown } | undefined;
  #now: () => Progress = () => ({ fraction: 0, step: '' });
  #end = (): void => {};
  #timer: NodeJS.Timeout | undefined;

  constructor(private readonly tell: (progress: Progress) => void) {}

  /** Tells of an attempt at the call, until stop(). `now` estimates. `end` ends the attempt, where the callback throws. */
  start(now: () => Progress, end: () => void): void {
    this.#now = now;
    this.#end = end;
    this.#timer = setInterval(() => this.#report(false), INTERVAL_MS).unref();
  }

  /** Throws what the callback has thrown. */
  check(): void {
    if (this.#thrown) throw this.#thrown.error;
  }

  /** Tells that the call has succeeded. Throws what the callback throws. */
  finish(): void {
    this.stop();
    this.#report(true);
    this.check();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #report(isEnd: boolean): void {
    const { fraction, step } = this.#now();
    // Estimates may be off, but only the end is the end.
    this.#fraction = isEnd ? 1 : Math.min(0.99, Math.max(this.#fraction, fraction));
    try {
      this.tell({ fraction: this.#fraction, step });
    } catch (error) {
      this.#thrown ??= { error };
      this.#end();
    }
  }
}
