/** What ran when in a call, as a file of Chrome trace events: Perfetto and chrome://tracing open it. */
import { type FileHandle, open } from 'node:fs/promises';
import { WarpjoinError } from './errors.js';
import { type Items, itemsLater, itemsOf, nextOf, type OrEnd } from './items.js';
import type { DeviceDescription, EventRecord } from './native.js';

/** A step of a call; times in milliseconds since the call began. */
export interface TracedStep {
  name: string;
  begin: number;
  end: number;
}

/** What is known of a call that has ended. */
export interface Traced {
  /** When the call began, as performance.now() says it. */
  began: number;
  steps: readonly TracedStep[];
  /** Times as those of the steps. */
  events: readonly EventRecord[];
  devices: readonly DeviceDescription[];
}

/** One write to a temporary file, or one read of it. Times as performance.now() says them. */
export interface FileAccess {
  name: 'write' | 'read';
  began: number;
  ended: number;
  bytes: number;
}

/** Told what is done while a call runs: each attempt at it or at a call that it makes, and what temporary files it used. */
export interface Keep {
  call(traced: Traced): void;
  file(access: FileAccess): void;
}

/** One event or name of the format: times in microseconds. */
interface ChromeEvent {
  name: string;
  ph: 'X' | 'M';
  pid: number;
  tid: number;
  ts?: number;
  dur?: number;
  args: Record<string, unknown>;
}

const HOST = 0;
/** Devices have the numbers behind that of the host; no host has so many. */
const FILES = 1_000_000;
/** Calls at the same time have tracks of their own: so many numbers lie between those of one call and of the next. So have writes and reads. */
const TRACKS_OF_CALL = 100_000;
/** Streams of a direction have the numbers of the threads that fill them; that of direct copies comes before them. */
const TRACKS: Record<Exclude<EventRecord['track'], 'thread'>, { name: string; first: number }> = {
  toDevice: { name: 'to device', first: 1 },
  kernels: { name: 'kernels', first: 10_000 },
  toHost: { name: 'to host', first: 20_000 },
};

/** The place of an event: a process for the host and one for each device, in them a track for each thread or stream. */
function trackOf({ track, device, number }: EventRecord, call: number): { pid: number; tid: number; name: string } {
  if (track === 'thread') return { pid: HOST, tid: call * TRACKS_OF_CALL + 1 + number!, name: ofCall(`thread ${number}`, call) };
  const { name, first } = TRACKS[track];
  const stream = number === null ? 'direct' : `stream ${number}`;
  return { pid: 1 + device, tid: first + (number === null ? 0 : 1 + number), name: `${name}, ${stream}` };
}

const span = (name: string, pid: number, tid: number, begin: number, end: number, args: ChromeEvent['args']): ChromeEvent => ({
  ...{ name, ph: 'X', pid, tid, args },
  ts: begin * 1e3,
  dur: Math.max(0, end - begin) * 1e3,
});
const label = (of: 'process_name' | 'thread_name', pid: number, tid: number, name: string): ChromeEvent => ({
  ...{ name: of, ph: 'M', pid, tid, args: { name } },
});

const ofCall = (name: string, call: number): string => (call === 0 ? name : `${name}, call ${call + 1}`);
const ofAccess = (name: string, number: number): string => (number === 0 ? name : `${name} ${number + 1}`);

/** When a call's last step or event ended. */
const endOf = ({ began, steps, events }: Traced): number =>
  [...steps, ...events].reduce((last, { end }) => Math.max(last, began + end), began);

/** What began at some time and ended later, in the order of the begins: each with a number that no other one has at the same time. */
function numbered<T extends { began: number }>(all: readonly T[], endOf: (one: T) => number): { one: T; number: number }[] {
  /** When the last one of each number ended. */
  const ends: number[] = [];
  return [...all]
    .sort((a, b) => a.began - b.began)
    .map((one) => {
      const free = ends.findIndex((end) => end <= one.began);
      const number = free < 0 ? ends.length : free;
      ends[number] = endOf(one);
      return { one, number };
    });
}

/** The calls' steps, and what ran on each thread, and on each stream of each device and direction; writes and reads of temporary files. */
export function chromeEvents(calls: readonly Traced[], accesses: readonly FileAccess[] = []): ChromeEvent[] {
  const made = [label('process_name', HOST, 0, 'host')];
  const labelled = new Set<string>();
  const labelTrack = (pid: number, tid: number, name: string): void => {
    const track = `${pid} ${tid}`;
    if (!labelled.has(track)) made.push(label('thread_name', pid, tid, name));
    labelled.add(track);
  };
  labelTrack(HOST, 0, 'steps');
  const devices = new Map(calls.flatMap((call) => call.devices.map(({ ordinal, name }) => [ordinal, name] as const)));
  for (const [ordinal, name] of devices) made.push(label('process_name', 1 + ordinal, 0, `${ordinal} ${name}`));
  const first = [...calls, ...accesses].reduce((least, { began }) => Math.min(least, began), Number.POSITIVE_INFINITY);
  for (const { one: call, number } of numbered(calls, endOf)) {
    const later = call.began - first;
    const tid = number * TRACKS_OF_CALL;
    labelTrack(HOST, tid, ofCall('steps', number));
    for (const { name, begin, end } of call.steps) made.push(span(name, HOST, tid, later + begin, later + end, {}));
    /** When the last event of each track ended. */
    const ends = new Map<string, number>();
    for (const event of [...call.events].sort((a, b) => a.end - b.end)) {
      const { pid, tid, name } = trackOf(event, number);
      const track = `${pid} ${tid}`;
      labelTrack(pid, tid, name);
      // A stream does one thing at a time. Phases of a thread hold its copies.
      const before = event.track === 'thread' ? 0 : (ends.get(track) ?? 0);
      const begin = Math.max(event.begin, before);
      made.push(span(event.name, pid, tid, later + begin, later + event.end, { bytes: event.bytes }));
      ends.set(track, event.end);
    }
  }
  if (accesses.length > 0) made.push(label('process_name', FILES, 0, 'temporary files'));
  for (const [index, of] of (['write', 'read'] as const).entries()) {
    const some = accesses.filter(({ name }) => name === of);
    for (const { one, number } of numbered(some, ({ ended }) => ended)) {
      const { name, began, ended, bytes } = one;
      const tid = index * TRACKS_OF_CALL + number;
      labelTrack(FILES, tid, ofAccess(name, number));
      made.push(span(name, FILES, tid, began - first, ended - first, { bytes }));
    }
  }
  return made;
}

const failed = (path: string, error: unknown): WarpjoinError =>
  new WarpjoinError('ERR_OPTION', `The trace can't be written to ${path}: ${(error as Error).message}`, { cause: error });

/** A file for what calls do. */
export class TraceFile implements AsyncDisposable {
  readonly #calls: Traced[] = [];
  readonly #accesses: FileAccess[] = [];
  #isWritten = false;

  private constructor(
    private readonly path: string,
    private readonly file: FileHandle,
  ) {}

  /** Throws ERR_OPTION where the file can't be made. */
  static async open(path: string): Promise<TraceFile> {
    return new TraceFile(
      path,
      await open(path, 'w').catch((error) => {
        throw failed(path, error);
      }),
    );
  }

  readonly keep: Keep = {
    call: (traced) => void this.#calls.push(traced),
    file: (access) => void this.#accesses.push(access),
  };

  /** Writes what was kept, the first time. Throws ERR_OPTION. */
  async write(): Promise<void> {
    if (this.#isWritten) return;
    this.#isWritten = true;
    const calls = this.#calls.splice(0);
    const accesses = this.#accesses.splice(0);
    try {
      await this.file.writeFile(JSON.stringify({ displayTimeUnit: 'ms', traceEvents: chromeEvents(calls, accesses) }));
    } catch (error) {
      throw failed(this.path, error);
    } finally {
      await this.file.close();
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.write();
  }
}

/**
 * Runs `call`, which tells what is done, and writes that to the file, also where the call fails. Throws ERR_OPTION where
 * the file can't be made, before the call begins. Without a path it only runs the call: nobody is told.
 */
export async function tracing<T>(path: string | undefined, call: (keep: Keep | null) => Promise<T>): Promise<T> {
  if (path === undefined) return call(null);
  const file = await TraceFile.open(path);
  let result: T;
  try {
    result = await call(file.keep);
  } catch (error) {
    await file.write().catch(() => {}); // the call's own error says more
    throw error;
  }
  await file.write();
  return result;
}

/** Items of `make`, which tells what is done on their way: that is written to the file at their end, however they end. */
export function tracedItems<T>(
  path: string | undefined,
  hold: (file: TraceFile) => TraceFile,
  make: (keep: Keep | null) => Items<T> | Promise<Items<T>>,
): Items<T> {
  if (path === undefined) return itemsLater(() => make(null));
  let file: TraceFile | undefined;
  let items: Items<T> | undefined;
  let hasFailed = false;
  const next = async (): Promise<OrEnd<T>> => {
    file ??= hold(await TraceFile.open(path));
    items ??= await make(file.keep);
    return nextOf(items);
  };
  return itemsOf(
    () =>
      next().catch((error) => {
        hasFailed = true;
        throw error;
      }),
    async () => {
      try {
        await items?.return();
      } finally {
        await file?.write().catch((error) => {
          if (!hasFailed) throw error; // the items' own error says more
        });
      }
    },
  );
}
