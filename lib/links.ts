/** The speeds of the links, measured once a host: they are kept in a file, which is only a cache. */
import { createHash } from 'node:crypto';
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { homedir, hostname } from 'node:os';
import { dirname, join } from 'node:path';
import type { DeviceDescription, LinkSpeeds, NativeAddon, NativeEngine, NativeJob } from './native.js';
import { VERSION } from './version.js';

/** Speeds in bytes a second, and when they were measured. */
export interface MeasuredLinks extends LinkSpeeds {
  /** ISO 8601. */
  measuredAt: string;
}

/** What the speeds depend on: a change of any of it means another file. */
interface Host {
  name: string;
  backend: string;
  /** In the order of the engine's devices. */
  gpus: string[];
  /** Which GPUs the process may see: their names don't tell. */
  visible: string[];
  driver: string;
  warpjoin: string;
}

const VISIBLE = ['CUDA_VISIBLE_DEVICES', 'HIP_VISIBLE_DEVICES', 'ROCR_VISIBLE_DEVICES'];
const DRIVER_FILES = ['/proc/driver/nvidia/version', '/sys/module/amdgpu/version'];

async function describeHost(backend: string, devices: readonly DeviceDescription[]): Promise<Host> {
  const drivers = await Promise.all(DRIVER_FILES.map((path) => readFile(path, 'utf8').catch(() => '')));
  return {
    name: hostname(),
    backend,
    gpus: devices.map((device) => device.name),
    visible: VISIBLE.map((name) => process.env[name] ?? ''),
    driver: drivers.join('').trim(),
    warpjoin: VERSION,
  };
}

/** WARPJOIN_CACHE_DIR, else warpjoin/ of the user's cache directory. */
export function cacheFolder(): string {
  return process.env.WARPJOIN_CACHE_DIR || join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'warpjoin');
}

/** Where the file of `host` is. */
function fileOf(host: Host): string {
  const digest = createHash('sha256').update(JSON.stringify(host)).digest('hex').slice(0, 16);
  return join(cacheFolder(), `links-${digest}.json`);
}

const isSpeed = (value: unknown): boolean => typeof value === 'number' && Number.isFinite(value) && value > 0;

/** Whether `value` is what measuring these devices gives; a file may hold anything. */
function isMeasured(value: unknown, devices: readonly DeviceDescription[]): value is MeasuredLinks {
  const { measuredAt, sets, peers } = (value ?? {}) as Partial<MeasuredLinks>;
  const isDevice = (ordinal: unknown): boolean => devices.some((device) => device.ordinal === ordinal);
  return (
    typeof measuredAt === 'string' &&
    !Number.isNaN(Date.parse(measuredAt)) &&
    Array.isArray(sets) &&
    sets.some((set) => set?.devices?.length === devices.length) &&
    sets.every(
      (set) =>
        Array.isArray(set?.devices) && set.devices.every(isDevice) && isSpeed(set.h2d) && isSpeed(set.d2h) && isSpeed(set.both),
    ) &&
    Array.isArray(peers) &&
    peers.every((pair) => isDevice(pair?.from) && isDevice(pair?.to) && isSpeed(pair?.speed))
  );
}

async function read(file: string, devices: readonly DeviceDescription[]): Promise<MeasuredLinks | undefined> {
  try {
    const { measuredAt, sets, peers } = JSON.parse(await readFile(file, 'utf8'));
    const links = { measuredAt, sets, peers };
    return isMeasured(links, devices) ? links : undefined;
  } catch {
    return undefined; // measured again
  }
}

async function write(file: string, host: Host, links: MeasuredLinks): Promise<void> {
  const temporary = `${file}.${process.pid}`;
  try {
    await mkdir(dirname(file), { recursive: true });
    await writeFile(temporary, `${JSON.stringify({ host, ...links }, null, 1)}\n`);
    await rename(temporary, file); // whole, or not at all: another process may read it
  } catch {
    await rm(temporary, { force: true }).catch(() => {}); // the next process measures again
  }
}

/** The links of an engine. */
export class Links {
  readonly #native: NativeEngine;
  readonly #backend: NativeAddon['backend'];
  #known: MeasuredLinks | undefined;

  constructor(native: NativeEngine, backend: NativeAddon['backend']) {
    this.#native = native;
    this.#backend = backend;
  }

  /**
   * The speeds, from the host's file unless `anew`; else measured, as a step of `job`, and kept. null without GPUs.
   * Rejects like NativeEngine.measureLinks; never for a file that can't be read or written.
   */
  async speeds(job: NativeJob, anew: boolean): Promise<MeasuredLinks | null> {
    const devices = this.#native.devices();
    if (!devices.some((device) => device.kind === 'gpu')) return null;
    if (this.#known && !anew) return this.#known;
    const host = await describeHost(this.#backend, devices);
    const file = fileOf(host);
    const kept = anew ? undefined : await read(file, devices);
    this.#known = kept ?? { measuredAt: new Date().toISOString(), ...(await this.#native.measureLinks(job)) };
    if (!kept) await write(file, host, this.#known);
    return this.#known;
  }
}
