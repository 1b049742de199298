/** Trace files, read back as the tracks that Perfetto shows. */
import { readFileSync } from 'node:fs';

export interface Span {
  name: string;
  /** Milliseconds. */
  begin: number;
  end: number;
  bytes: number;
}

/** By the names of the process and of the track, `host/steps` say. Throws where something is not of the format. */
export function readTrace(path: string): Map<string, Span[]> {
  const { traceEvents } = JSON.parse(readFileSync(path, 'utf8')) as { traceEvents: Record<string, unknown>[] };
  const names = new Map<string, string>();
  for (const { ph, name, pid, tid, args } of traceEvents) {
    if (ph === 'M') names.set(name === 'process_name' ? `${pid}` : `${pid} ${tid}`, (args as { name: string }).name);
  }
  const tracks = new Map<string, Span[]>();
  for (const { ph, name, pid, tid, ts, dur, args } of traceEvents) {
    if (ph === 'M') continue;
    const [process, track] = [names.get(`${pid}`), names.get(`${pid} ${tid}`)];
    if (ph !== 'X' || process === undefined || track === undefined) throw new Error(`An event that is none: ${String(name)}`);
    if (!(Number.isFinite(ts) && (dur as number) >= 0)) throw new Error(`${String(name)} begins at ${ts} and takes ${dur}`);
    const begin = (ts as number) / 1e3;
    const { bytes = 0 } = args as { bytes?: number };
    const spans = tracks.get(`${process}/${track}`) ?? [];
    tracks.set(`${process}/${track}`, [...spans, { name: String(name), begin, end: begin + (dur as number) / 1e3, bytes }]);
  }
  return tracks;
}

/** All spans of the tracks whose name matches. */
export function spansOf(trace: Map<string, Span[]>, track: RegExp): Span[] {
  return [...trace].flatMap(([name, spans]) => (track.test(name) ? spans : []));
}

/** Milliseconds in which a span of each kind runs. */
export function overlap(one: readonly Span[], other: readonly Span[]): number {
  const both = one.flatMap((a) => other.map((b): [number, number] => [Math.max(a.begin, b.begin), Math.min(a.end, b.end)]));
  const sorted = both.filter(([begin, end]) => begin < end).sort(([a], [b]) => a - b);
  let [sum, until] = [0, Number.NEGATIVE_INFINITY];
  for (const [begin, end] of sorted) {
    sum += Math.max(0, end - Math.max(begin, until));
    until = Math.max(until, end);
  }
  return sum;
}
