/** One user-visible call: its native job and handles, its progress, abort, errors and stats. */
import { setImmediate } from 'node:timers/promises';
import type { Signal } from '../abort.js';
import { HeldBuffers } from '../columns/held-buffers.js';
import { type Input, nativeColumns, takeDictionaries } from '../columns/input.js';
import { MAX_ARRAY_BYTES } from '../columns/result.js';
import { WarpjoinError } from '../errors.js';
import type { Links, MeasuredLinks } from '../links.js';
import type { DeviceDescription, NativeEngine, NativeJob, RelationHandle } from '../native.js';
import { isDeviceShortage, isRowLimit, translate } from '../native-errors.js';
import type { Progress, Running } from '../options.js';
import { milliseconds } from '../plan/costs.js';
import { LEAST_BYTES_FOR_A_CHOICE } from '../plan/device-set.js';
import type { Measured } from '../plan/explain.js';
import { type Work, whyProcessor } from '../plan/placement.js';
import { attempt as attemptPlan, deviceChoices, type Plan, type Resources, type Step } from '../plan/plan.js';
import { Reporting } from '../progress.js';
import { formatBytes } from '../sizes.js';
import { type Keep, type Traced, type TracedStep, tracing } from '../trace.js';
import type { Turn, When } from '../turns.js';
import type { Stats } from '../types.js';
import type { Tables } from './load.js';
import { reclaim } from './reclaim.js';

/** What operators need of an engine. */
export interface EngineCore {
  /** The devices, and the memory that all calls share. Calls run on that of their turn, which is like it. */
  readonly native: NativeEngine;
  readonly threads: number;
  /** Why the devices are what they are. */
  readonly deviceReason: string;
  /** The same engine's processor, for a call that is placed there for a reason; null: its devices run all calls. */
  readonly processor: ((deviceReason: string) => EngineCore) | null;
  readonly links: Links;
  /** Whether results are typed arrays, which can't be split as tables can. */
  readonly givesArrays: boolean;
  /** Bytes of a buffer of a result at most, but for one value that is longer. Unset: 1 GiB. */
  readonly maxBufferBytes?: number;
  /** Bytes of a dictionary's indices in results, at least. Unset: those that they have, and that its values need. */
  readonly leastIndexBytes?: number;
  /** Told what is done for a larger call. Unset: nobody wants to know. */
  readonly keep?: Keep;
  /** Runs `task` in its turn; rejects at once if `signal` aborts while it waits. */
  enqueue<T>(when: When, signal: Signal | undefined, task: (turn: Turn) => Promise<T>): Promise<T>;
  /** Runs `task` when all calls before it have ended, of an engine that was disposed, too. */
  after<T>(task: () => Promise<T>): Promise<T>;
  readonly tables: Tables;
}

export interface Releasable {
  release(): void;
}

/** The share of a call's progress that the steps before there is a plan get together. */
const BEFORE_PLAN = 0.1;

/** A device had less memory free than its limit allows: others use it too. */
interface Shortage {
  error: WarpjoinError;
  /** What the engine may take of each device now, with loaded tables. */
  limitBytes: number;
}

/** How often a call is planned anew, with less device memory each time. */
const MOST_REPLANS = 2;

/** The shortage that ended an attempt, or null. */
function shortageOf(error: unknown, devices: readonly DeviceDescription[]): Shortage | null {
  if (!(error instanceof WarpjoinError)) return null;
  const { freeBytes } = (error.cause ?? {}) as { freeBytes?: unknown };
  if (typeof freeBytes !== 'number') return null;
  // A part stays free: allocations are rounded up, and what is free lies in pieces.
  const residentBytes = Math.max(...devices.map((device) => device.residentBytes));
  return { error, limitBytes: residentBytes + Math.floor((freeBytes * 15) / 16) };
}

export class Call {
  readonly job: NativeJob;
  readonly #handles = new Set<Releasable>();
  readonly #buffers = new HeldBuffers();
  readonly #steps: TracedStep[] = [];
  readonly #started = performance.now();
  /** When its job was made, in milliseconds since it was started. */
  readonly #jobBegan: number;
  #progress = { base: 0, share: 0, planned: 0, done: 0, step: '' };
  #stepsBeforePlan = 0;
  #planMilliseconds = 0;

  constructor(
    readonly core: EngineCore,
    private readonly turn: Turn,
    private readonly signal: Signal | undefined,
    private readonly reporting: Reporting | null,
    private readonly shortage: Shortage | null,
    isTraced: boolean,
  ) {
    if (!turn.isShared) turn.native.resetPeaks();
    const maxBufferBytes = core.givesArrays ? MAX_ARRAY_BYTES : core.maxBufferBytes;
    this.job = turn.native.createJob(maxBufferBytes, isTraced);
    this.#jobBegan = this.#sinceStart();
    reporting?.start(
      () => this.#reached(),
      () => this.job.cancel(),
    );
  }

  #sinceStart(): number {
    return performance.now() - this.#started;
  }

  /** What it did up to now. */
  traced(): Traced {
    const at = (milliseconds: number): number => milliseconds + this.#jobBegan;
    const events = this.job.events().map((event) => ({ ...event, begin: at(event.begin), end: at(event.end) }));
    return { began: this.#started, steps: this.#steps, events, devices: this.native.devices() };
  }

  get deviceReason(): string {
    return this.core.deviceReason;
  }

  get native(): NativeEngine {
    return this.turn.native;
  }

  get tables(): Tables {
    return this.core.tables;
  }

  /** Brings those of the inputs to host memory that are on the devices alone. */
  async bringHome(...inputs: Input[]): Promise<void> {
    for (const { loaded } of inputs) if (loaded) await this.tables.bringHome(this, loaded);
  }

  /** Releases the handle with the call, unless `free` does before. */
  keep<H extends Releasable>(handle: H): H {
    this.#handles.add(handle);
    return handle;
  }

  /** Takes back what keep() said: the handle outlives the call. */
  handOver(handle: Releasable): void {
    this.#handles.delete(handle);
  }

  /** Those that the call holds. */
  get handles(): Releasable[] {
    return [...this.#handles];
  }

  free(...handles: (Releasable | null)[]): void {
    for (const handle of handles) {
      if (!handle) continue;
      this.#handles.delete(handle);
      handle.release();
    }
  }

  /** Checks the buffers of an input's columns, which the steps that are given the handle read; from now on check() looks whether they are still there. */
  async relation(step: string, input: Input, columns: readonly number[]): Promise<RelationHandle> {
    this.#buffers.add(input, columns);
    const check = () => this.native.relation(this.job, nativeColumns(input, columns), input.rows);
    const relation = this.keep(await this.step(step, check));
    takeDictionaries(input, columns, relation.dictionaries);
    return relation;
  }

  /** Runs a step of the plan, or, named by a string, one that comes before there is a plan. */
  async step<T>(step: Step | string, work: () => Promise<T>): Promise<T> {
    const name = typeof step === 'string' ? step : step.label;
    this.check();
    if (this.reporting) {
      const { planned, done } = this.job.progress();
      this.#progress = { ...this.#progress, share: this.#shareOf(step), planned, done, step: name };
    }
    const begin = this.#sinceStart();
    try {
      return await work();
    } finally {
      this.#steps.push({ name, begin, end: this.#sinceStart() });
      this.#progress.base += this.#progress.share;
      this.#progress.share = 0;
    }
  }

  /** From here on the estimates of the plan's steps weigh the progress. */
  follow(plan: Plan): void {
    this.turn.promisedBytes = plan.hostBytes;
    this.#planMilliseconds = Math.max(milliseconds(plan.steps), Number.MIN_VALUE);
    this.#progress.base = BEFORE_PLAN;
  }

  /** What there is now: neither what was allocated since the call began, nor what loaded tables take, nor what other calls will take is free. */
  get resources(): Resources {
    const { native } = this;
    const { threads } = this.core;
    const { usedBytes, limitBytes } = native.memory();
    return {
      devices: native.devices().map((device) => ({
        ...device,
        limitBytes: Math.max(
          0,
          Math.min(device.limitBytes, this.shortage?.limitBytes ?? Number.POSITIVE_INFINITY) - device.residentBytes,
        ),
      })),
      threads,
      memoryLimitBytes: limitBytes,
      freeBytes: Math.max(0, limitBytes - usedBytes - this.turn.promisedToOthers),
      sortSpills: (tuples, chunkset, devices) => native.sortSpills(tuples, chunkset, devices),
      mergeScratchBytes: (keyBytes, valueBytes, tuples, runs) => native.mergeScratchBytes(keyBytes, valueBytes, tuples, runs),
      links: null,
    };
  }

  /**
   * What `plan` makes of the resources. Before it goes through the devices in several parts, or does not fit at all, loaded
   * tables that the call does not read where they lie make room for it.
   */
  async planned<P extends Plan>(given: Resources, plan: (resources: Resources) => P): Promise<{ plan: P; resources: Resources }> {
    for (let resources = given; ; resources = { ...this.resources, links: given.links }) {
      const [made, none] = attemptPlan(() => plan(resources));
      if (made?.chunksets === 1 && made.rounds === 1) return { plan: made, resources };
      if (await this.tables.makeRoom(this)) continue;
      if (none) throw none;
      return { plan: made!, resources };
    }
  }

  /** The same for a plan that sends `bytes` through the devices: with the links' speeds where there is a choice to make. */
  async resourcesFor(bytes: number): Promise<Resources> {
    const gpus = this.resources.devices.filter((device) => device.kind === 'gpu');
    if (gpus.length < 2 || bytes < LEAST_BYTES_FOR_A_CHOICE) return this.resources;
    const links = await this.linksOrWhyNot();
    return { ...this.resources, links };
  }

  /** The speeds of the links, or why they could not be measured; null without GPUs. */
  async linksOrWhyNot(): Promise<MeasuredLinks | string | null> {
    try {
      return await this.linkSpeeds(false);
    } catch (error) {
      const { code, message } = error as { code?: unknown; message: string };
      // A limit too small to measure with may be large enough to work with.
      if (code !== 'ERR_MEMORY_LIMIT' && !isDeviceShortage(error)) throw error;
      return `the links could not be measured: ${message}`;
    }
  }

  /** What explain() shows of a call that has run. */
  async measured(stats: Stats): Promise<Measured> {
    return { stats, links: await this.linksOrWhyNot() };
  }

  linkSpeeds(anew: boolean): Promise<MeasuredLinks | null> {
    return this.step('link speeds', () => this.core.links.speeds(this.job, anew));
  }

  #shareOf(step: Step | string): number {
    if (typeof step !== 'string') return ((1 - BEFORE_PLAN) * step.estimate.milliseconds) / this.#planMilliseconds;
    this.#stepsBeforePlan++;
    return BEFORE_PLAN / 2 ** this.#stepsBeforePlan;
  }

  /** Throws if the call was aborted, its progress callback threw, or memory that it reads is gone. */
  check(): void {
    this.reporting?.check();
    this.signal?.throwIfAborted();
    this.#buffers.check();
  }

  /** Throws what check() throws, and what the progress callback does, which is told that the call has succeeded. */
  finish(): void {
    this.check();
    this.reporting?.finish();
    this.signal?.throwIfAborted();
  }

  #reached(): Progress {
    const { base, share, planned, done, step } = this.#progress;
    const now = this.job.progress();
    const within = now.planned > planned ? Math.min(1, (now.done - done) / (now.planned - planned)) : 0;
    return { fraction: base + share * within, step };
  }

  release(): void {
    this.reporting?.stop();
    for (const handle of this.#handles) handle.release();
    this.#handles.clear();
  }

  stats(
    plan: Plan,
    inputRows: number[],
    outputRows: number,
    { skew = 1, splitRows = 0, spilledRows = 0 }: Partial<Pick<Stats, 'skew' | 'splitRows' | 'spilledRows'>> = {},
  ): Stats {
    const devices: DeviceDescription[] = this.native.devices();
    return {
      device: devices.some((device) => device.kind === 'gpu') ? 'gpu' : 'cpu',
      deviceReason: this.core.deviceReason,
      devices: devices.map(({ name, kind, peakBytes, bytesToDevice, bytesToHost }) => ({
        name,
        kind,
        peakBytes,
        bytesToDevice,
        bytesToHost,
      })),
      deviceChoices: deviceChoices(plan),
      algorithm: plan.algorithm,
      algorithmReason: plan.reason,
      milliseconds: this.#sinceStart(),
      inputRows,
      outputRows,
      steps: this.#steps.map(({ name, begin, end }) => ({ name, milliseconds: end - begin })),
      phases: this.job.phases(),
      peakMemoryBytes: this.native.memory().peakBytes,
      skew,
      splitRows,
      spilledRows,
      chunksets: plan.chunksets,
      rounds: plan.rounds,
      inOrder: plan.inOrder,
      resident: plan.loaded?.inputs ?? [],
      residentReason: plan.loaded?.reason ?? null,
      replanned: this.shortage?.error.message ?? null,
    };
  }
}

/** Where a call runs: on the processor if that takes less than GPUs, and the engine may choose; a `null` has nothing for GPUs. */
export function placed(core: EngineCore, work: Work | null): EngineCore {
  if (!core.processor || !work) return core;
  const why = whyProcessor(work, core.native.devices());
  return why === null ? core : onProcessor(core, why);
}

/** The processor of an engine that may choose it, for this reason; the engine itself where it may not. What is asked of results stays. */
export function onProcessor(core: EngineCore, reason: string): EngineCore {
  const { givesArrays, maxBufferBytes, keep } = core;
  const asked = { givesArrays, ...(maxBufferBytes !== undefined && { maxBufferBytes }), ...(keep && { keep }) };
  return core.processor ? { ...core.processor(reason), ...asked } : core;
}

/** What runs as one call of an engine, at every attempt. */
interface Asked<T> {
  readonly core: EngineCore;
  readonly signal: Signal | undefined;
  readonly reporting: Reporting | null;
  readonly keep: Keep | null;
  body(call: Call): Promise<T>;
}

/**
 * Runs `body` as one call of the engine, in its turn. Rejects with the signal's reason once aborted, with what a progress callback
 * throws, and else with a WarpjoinError; whatever happens, all handles are released. Where host memory is short beside other calls it
 * runs again alone; and again, if results that nobody holds any more were in the way. Where device memory is short it is planned anew,
 * with what is left.
 */
export async function runCall<T>(core: EngineCore, running: Running, body: (call: Call) => Promise<T>): Promise<T> {
  const { signal, onProgress, trace } = running;
  signal?.throwIfAborted();
  return tracing(trace, async (own) => {
    const reporting = onProgress ? new Reporting(onProgress) : null;
    const asked = { core, signal, reporting, keep: own ?? core.keep ?? null, body };
    const inTurn = (turn: Turn) => reclaiming(turn, signal, () => withLessDeviceMemory(asked, turn));
    const made = await core.enqueue('beside others', signal, async (turn) => {
      try {
        return { result: await inTurn(turn) };
      } catch (error) {
        if (turn.isShared && isShort(error)) return null;
        throw error;
      }
    });
    return made ? made.result : core.enqueue('alone, next', signal, inTurn);
  });
}

/** Runs a call a second time where host memory is short, if results that nobody holds any more were in the way. */
async function reclaiming<T>(turn: Turn, signal: Signal | undefined, run: () => Promise<T>): Promise<T> {
  const { native } = turn;
  let { usedBytes: heldBytes } = native.memory();
  try {
    return await run();
  } catch (error) {
    if (turn.isShared || !isShort(error)) throw error;
    if (!(await reclaim(native, heldBytes))) throw namingHeld(heldBytes, error);
  }
  signal?.throwIfAborted();
  heldBytes = native.memory().usedBytes;
  try {
    return await run();
  } catch (error) {
    throw isShort(error) ? namingHeld(heldBytes, error) : error;
  }
}

/** Whether a call failed for want of host memory. */
function isShort(error: unknown): error is WarpjoinError {
  if (!(error instanceof WarpjoinError) || error.code !== 'ERR_MEMORY_LIMIT') return false;
  return !isDeviceShortage(error.cause) && !isRowLimit(error.cause);
}

/** The error where memory is short, with how much of it the caller still held as results when the call began. */
function namingHeld(heldBytes: number, error: WarpjoinError): WarpjoinError {
  if (heldBytes === 0) return error;
  const held = `Results of earlier calls that are still referenced hold ${formatBytes(heldBytes)} of the limit.`;
  return new WarpjoinError(error.code, `${error.message.replace(/\.?$/, '.')} ${held}`, { cause: error.cause ?? error });
}

async function withLessDeviceMemory<T>(asked: Asked<T>, turn: Turn): Promise<T> {
  let shortage: Shortage | null = null;
  for (let replans = 0; ; replans++) {
    try {
      return await attempt(asked, turn, shortage);
    } catch (error) {
      // What planning throws has no cause: there is no plan that takes so little.
      if (shortage && error instanceof WarpjoinError && error.cause === undefined) throw shortage.error;
      const found = shortageOf(error, turn.native.devices());
      if (!found || replans === MOST_REPLANS) throw error;
      shortage = found;
    }
    asked.signal?.throwIfAborted();
  }
}

async function attempt<T>(asked: Asked<T>, turn: Turn, shortage: Shortage | null): Promise<T> {
  const { core, signal, reporting, keep } = asked;
  const call = new Call(core, turn, signal, reporting, shortage, keep !== null);
  let succeeded = false;
  const abort = (): void => call.job.cancel();
  try {
    signal?.addEventListener('abort', abort);
    await setImmediate(); // brief steps run at once: timers and sockets have their turn here
    const result = await asked.body(call);
    call.finish();
    succeeded = true;
    return result;
  } catch (error) {
    call.check();
    throw translate(error);
  } finally {
    signal?.removeEventListener('abort', abort);
    keep?.call(call.traced());
    call.release();
    core.tables.endCall(succeeded);
  }
}
