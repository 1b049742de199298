/**
 * Engines for tests: n devices are n host devices or, with WARPJOIN_TEST_DEVICES=gpu, the first n GPUs. What the host has
 * too few devices for is skipped, and said.
 */
import { afterAll, describe, test } from 'vitest';
import { Engine } from '../../lib/engine.js';
import { createEngine, type EngineOptions } from '../../lib/index.js';
import { type NativeEngine, type NativeEngineConfig, native } from '../../lib/native.js';
import { engineSchema } from '../../lib/options.js';
import { parse } from '../../lib/schema.js';

export const onGpus = process.env.WARPJOIN_TEST_DEVICES === 'gpu';
/** The hash join that takes what is larger than the devices' memory. */
export const hashJoin = onGpus ? 'triton' : 'radix-hash';
const most = onGpus ? native().gpus().length : Number.POSITIVE_INFINITY;
const COUNTS = [1, 2, 3, 4, 8];

/** The least device memory limit that an engine can be made with: GPUs copy a pattern to each other at the start. */
export const LEAST_DEVICE_LIMIT = onGpus ? 8192 : 128;

/** The numbers of devices that operators are tested on, as far as the host has them. */
export const DEVICE_COUNTS = COUNTS.filter((count) => count <= most);
if (DEVICE_COUNTS.length < COUNTS.length) {
  console.warn(`This host has ${most} GPUs: tests on more, of ${COUNTS.join(', ')}, are skipped`);
}

/** A test on so many devices. */
export const testOn = (devices: number): typeof test | typeof test.skip => (devices <= most ? test : test.skip);

/** A describe() for each number of devices. */
export function describeDevices(body: (devices: number) => void): void {
  for (const devices of COUNTS) {
    const name = `on ${devices} ${onGpus ? 'GPUs' : 'host devices'}`;
    if (devices <= most) describe(name, () => body(devices));
    else test.skip(`${name}: this host has ${most}`, () => {});
  }
}

/** describe() for what only host devices can show, and why GPUs can't. */
export function describeHost(name: string, whyNotGpus: string, body: () => void): void {
  if (onGpus) test.skip(`${name}, not on GPUs: ${whyNotGpus}`, () => {});
  else describe(name, body);
}

/** `devices` devices as the addon wants them. */
export function nativeDevices(devices: number): Pick<NativeEngineConfig, 'hostDevices' | 'gpus'> {
  return onGpus ? { hostDevices: 0, gpus: [...Array(devices).keys()] } : { hostDevices: devices, gpus: [] };
}

/** `devices` devices as an engine's options. */
export function deviceOptions(devices: number): Pick<EngineOptions, 'device' | 'devices' | 'hostDevices'> {
  return onGpus ? { devices: [...Array(devices).keys()] } : { device: 'cpu', hostDevices: devices };
}

type Options = Omit<EngineOptions, 'device' | 'devices' | 'hostDevices'>;

export function testEngine(devices: number, options: Options = {}): Promise<Engine> {
  return createEngine({ ...deviceOptions(devices), ...options });
}

/** An engine, and the native one in it: for its figures and its faults. */
export function inspectedEngine(
  devices: number,
  options: Options = {},
  more: Partial<NativeEngineConfig> = {},
): { engine: Engine; inner: NativeEngine } {
  const addon = native();
  let inner!: NativeEngine;
  const spy = new Proxy(addon, {
    get(target, name) {
      if (name !== 'Engine') return Reflect.get(target, name);
      return function Spied(config: NativeEngineConfig, beside?: NativeEngine) {
        const own = { ...config, ...more };
        if (beside) return new addon.Engine(own, beside); // for a call at the same time as others
        inner = new addon.Engine(own);
        return inner;
      };
    },
  });
  return { engine: new Engine(parse(engineSchema, 'createEngine', { ...deviceOptions(devices), ...options }), spy), inner };
}

/** An engine whose tables have no larger buffers than these: so they come in several record batches, like much larger ones. */
export function splittingEngine(devices: number, maxBufferBytes: number, options: Options = {}): Engine {
  const { engine, inner } = inspectedEngine(devices, options);
  const createJob = inner.createJob.bind(inner);
  Object.defineProperty(inner, 'createJob', { value: (given = maxBufferBytes, traced = false) => createJob(given, traced) });
  return engine;
}

/** Makes engines that are disposed after the tests of the file that calls this. */
export function engineMaker(defaults: Options): (devices: number, options?: Options) => Promise<Engine> {
  const engines: Promise<Engine>[] = [];
  afterAll(async () => {
    for (const engine of engines) await (await engine).dispose();
  });
  return (devices, options) => {
    const engine = testEngine(devices, { ...defaults, ...options });
    engines.push(engine);
    return engine;
  };
}
