/** Which calls of an engine run when: beside each other, within the memory that they share. */
import { type Signal, untilAborted } from './abort.js';
import type { NativeEngine } from './native.js';

/** Native engines with the same devices. Each runs one call at a time; a further one is made where all are busy. */
export class Lanes {
  readonly #all: NativeEngine[] = [];
  readonly #busy = new Set<NativeEngine>();

  /** `make` makes one that shares memory and threads with those before. */
  constructor(
    private readonly make: () => NativeEngine,
    private most: number,
  ) {}

  /** The one that calls take where none is busy. */
  get first(): NativeEngine {
    if (this.#all.length === 0) this.#all.push(this.make());
    return this.#all[0]!;
  }

  /** One that is not busy, which is busy from now on; null: there is none. */
  take(): NativeEngine | null {
    const free = this.first && (this.#all.find((one) => !this.#busy.has(one)) ?? this.#another());
    if (free) this.#busy.add(free);
    return free;
  }

  giveBack(native: NativeEngine): void {
    this.#busy.delete(native);
  }

  #another(): NativeEngine | null {
    if (this.#all.length >= this.most) return null;
    try {
      this.#all.push(this.make());
      return this.#all.at(-1)!;
    } catch {
      // The system gives no thread for it: calls wait for those that there are.
      this.most = this.#all.length;
      return null;
    }
  }

  /** Frees them, the first one last. They may still be taken, but run no step. */
  async dispose(): Promise<void> {
    for (const native of [...this.#all].reverse()) await native.dispose();
  }
}

/** When a call runs: beside others, in the order in which they came; or alone, before those that wait or behind them. */
export type When = 'beside others' | 'alone, next' | 'alone, last';

/** A call's time on a lane. */
export class Turn {
  /** Whether another call ran at any time of it. */
  isShared = false;
  /** Host memory that its plan takes. */
  promisedBytes = 0;

  constructor(
    readonly native: NativeEngine,
    private readonly running: ReadonlySet<Turn>,
  ) {}

  /** Host memory that the plans of the others take: what they have of it already is in use, too. */
  get promisedToOthers(): number {
    let bytes = 0;
    for (const turn of this.running) if (turn !== this) bytes += turn.promisedBytes;
    return bytes;
  }
}

interface Waiting {
  readonly lanes: Lanes;
  readonly isAlone: boolean;
  begin(turn: Turn): void;
}

/** The calls of one engine, whose lanes share memory. First come, first served, but for those that wait for another kind of lane. */
export class Turns {
  readonly #waiting: Waiting[] = [];
  readonly #running = new Set<Turn>();
  #oneIsAlone = false;

  /** Runs `task` on one of the lanes; rejects at once if `signal` aborts while it waits for it. */
  async run<T>(lanes: Lanes, when: When, signal: Signal | undefined, task: (turn: Turn) => Promise<T>): Promise<T> {
    const isAlone = when !== 'beside others';
    let given: Turn | undefined;
    let waiting!: Waiting;
    const begun = new Promise<Turn>((resolve) => {
      const begin = (turn: Turn): void => {
        given = turn;
        resolve(turn);
      };
      waiting = { lanes, isAlone, begin };
    });
    if (when === 'alone, next') this.#waiting.unshift(waiting);
    else this.#waiting.push(waiting);
    try {
      this.#beginSome();
      return await task(await (signal ? untilAborted(begun, signal) : begun));
    } finally {
      if (given) this.#end(lanes, given);
      else this.#waiting.splice(this.#waiting.indexOf(waiting), 1);
      this.#beginSome();
    }
  }

  #beginSome(): void {
    for (const waiting of [...this.#waiting]) {
      if (this.#oneIsAlone || (waiting.isAlone && this.#running.size > 0)) return;
      const native = waiting.lanes.take();
      if (!native) continue;
      this.#waiting.splice(this.#waiting.indexOf(waiting), 1);
      const turn = new Turn(native, this.#running);
      this.#running.add(turn);
      this.#oneIsAlone = waiting.isAlone;
      if (this.#running.size > 1) for (const running of this.#running) running.isShared = true;
      waiting.begin(turn);
    }
  }

  #end(lanes: Lanes, turn: Turn): void {
    this.#running.delete(turn);
    this.#oneIsAlone = false;
    lanes.giveBack(turn.native);
  }
}
