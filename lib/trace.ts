/** What ran when in a call, as a file of Chrome trace events: Perfetto and chrome://tracing open it. */
import { type FileHandle, open } from 'node:fs/promises';
import { WarpjoinError } from './errors.js';
import type { DeviceDescription, EventRecord } from './native.js';

/** A step of a call; times in milliseconds since the call began. */
export interface TracedStep {
  name: string;
  begin: number;
  end: number;
}

/** What is known of a call that has ended. */
export interface Traced {
  steps: readonly TracedStep[];
  /** Times as those of the steps. */
  events: readonly EventRecord[];
  devices: readonly DeviceDescription[];
}

/** Told what each attempt at a call did, of which the last one counts; null: nobody asked for a trace. */
export type Keep = ((traced: Traced) => void) | null;

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
/** Streams of a direction have the numbers of the threads that fill them; that of direct copies comes before them. */
const TRACKS: Record<Exclude<EventRecord['track'], 'thread'>, { name: string; first: number }> = {
  toDevice: { name: 'to device', first: 1 },
  kernels: { name: 'kernels', first: 10_000 },
  toHost: { name: 'to host', first: 20_000 },
};

/** The place of an event: a process for the host and one for each device, in them a track for each thread or stream. */
function trackOf({ track, device, number }: EventRecord): { pid: number; tid: number; name: string } {
  if (track === 'thread') return { pid: HOST, tid: 1 + number!, name: `thread ${number}` };
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

/** The call's steps, and what ran on each thread, and on each stream of each device and direction. */
export function chromeEvents({ steps, events, devices }: Traced): ChromeEvent[] {
  const made = [label('process_name', HOST, 0, 'host'), label('thread_name', HOST, 0, 'steps')];
  for (const { ordinal, name } of devices) made.push(label('process_name', 1 + ordinal, 0, `${ordinal} ${name}`));
  for (const { name, begin, end } of steps) made.push(span(name, HOST, 0, begin, end, {}));
  /** When the last event of each track ended. */
  const ends = new Map<string, number>();
  for (const event of [...events].sort((a, b) => a.end - b.end)) {
    const { pid, tid, name } = trackOf(event);
    const track = `${pid} ${tid}`;
    if (!ends.has(track)) made.push(label('thread_name', pid, tid, name));
    // A stream does one thing at a time. Phases of a thread hold its copies.
    const before = event.track === 'thread' ? 0 : (ends.get(track) ?? 0);
    made.push(span(event.name, pid, tid, Math.max(event.begin, before), event.end, { bytes: event.bytes }));
    ends.set(track, event.end);
  }
  return made;
}

const failed = (path: string, error: unknown): WarpjoinError =>
  new WarpjoinError('ERR_OPTION', `The trace can't be written to ${path}: ${(error as Error).message}`, { cause: error });

/**
 * Runs `call`, which tells `keep` what it did, and writes that to the file, also where the call fails. Throws ERR_OPTION where the file
 * can't be made, before the call begins. Without a path it only runs the call.
 */
export async function tracing<T>(path: string | undefined, call: (keep: Keep) => Promise<T>): Promise<T> {
  if (path === undefined) return call(null);
  const file = await open(path, 'w').catch((error) => {
    throw failed(path, error);
  });
  let traced: Traced = { steps: [], events: [], devices: [] };
  let result: T;
  try {
    result = await call((made) => {
      traced = made;
    });
  } catch (error) {
    await write(file, traced).catch(() => {}); // the call's own error says more
    throw error;
  }
  await write(file, traced).catch((error) => {
    throw failed(path, error);
  });
  return result;
}

async function write(file: FileHandle, traced: Traced): Promise<void> {
  try {
    await file.writeFile(JSON.stringify({ displayTimeUnit: 'ms', traceEvents: chromeEvents(traced) }));
  } finally {
    await file.close();
  }
}
