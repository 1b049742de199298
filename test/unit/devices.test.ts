/** `warpjoin devices` on an addon of plain JavaScript: which devices and links it shows. */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { parseCommandLine } from '../../lib/cli/arguments.js';
import { run } from '../../lib/cli/commands.js';
import { describeLinks } from '../../lib/cli/devices.js';
import { createEngine } from '../../lib/index.js';
import type { LinkSpeeds } from '../../lib/native.js';
import { type FakeAddon, fakeAddon } from '../support/fake-addon.js';
import { failure } from '../support/tables.js';

const loaded = vi.hoisted(() => ({ addon: undefined as unknown }));
vi.mock('../../lib/native.js', () => ({ native: () => loaded.addon }));

const set = (devices: number[], h2d: number, d2h: number, both: number) => ({
  devices,
  h2d: h2d * 1e9,
  d2h: d2h * 1e9,
  both: both * 1e9,
});
const LINKS: LinkSpeeds = {
  sets: [set([0], 55.04, 55.13, 102), set([1], 54.96, 9.5, 100.4), set([0, 1], 111.4, 110, 165)],
  peers: [
    { from: 0, to: 1, speed: 396.4e9 },
    { from: 1, to: 0, speed: 25.26e9 },
  ],
};

let folder: string;
let lines: string[];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'warpjoin-devices-'));
  vi.stubEnv('WARPJOIN_CACHE_DIR', folder);
  lines = [];
  vi.spyOn(console, 'log').mockImplementation((text: string) => void lines.push(...text.split('\n')));
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

async function devices(addon: FakeAddon, ...args: string[]): Promise<string[]> {
  loaded.addon = addon;
  const request = parseCommandLine(['devices', '--quiet', '--memory-limit', '4GiB', ...args]);
  if (request.kind !== 'run') return expect.fail(request.kind);
  lines = [];
  await run(request, new AbortController().signal);
  return lines;
}
const kinds = (): string[] => lines.filter((line) => /^(host|gpu) \d/.test(line)).map((line) => line.split(':')[0]!);

test('the processor alone where there is no GPU', async () => {
  const addon = fakeAddon();
  expect(await devices(addon, '--host-devices', '2')).toEqual([
    'host 0: host 0, 4 GiB of memory, of which warpjoin uses up to 4 GiB, copies directly to 1',
    'host 1: host 1, 4 GiB of memory, of which warpjoin uses up to 4 GiB, copies directly to 0',
    expect.stringMatching(/^no GPU: the addon has no code for GPUs, and .+; .+/),
  ]);
  expect(addon.calls).not.toContain('measureLinks');
  expect((await failure(devices(addon, '--measure'))).message).toBe('there are no GPUs whose links could be measured');
  expect((await failure(devices(addon, '--device', 'gpu'))).code).toBe('ERR_DEVICE');
});

test('the processor, the GPUs and their links', async () => {
  const addon = fakeAddon({ gpus: 2, links: LINKS });
  await devices(addon);
  expect(kinds()).toEqual(['host 0', 'gpu 0', 'gpu 1']);
  const links = lines.slice(lines.indexOf('') + 1);
  expect(links[0]).toMatch(/^Links between host and GPUs in GB\/s, measured on \d{4}-\d\d-\d\d \d\d:\d\d UTC \("--measure"/);
  expect(links.slice(1)).toEqual([
    'GPUs  to them  to host  both at once',
    '0        55.0     55.1           102',
    '1        55.0      9.5           100',
    '0, 1      111      110           165',
    '',
    'Copies from GPU to GPU in GB/s, one pair at a time:',
    'from  to 0  to 1',
    '0        -   396',
    '1     25.3     -',
  ]);
  expect(addon.calls.filter((call) => call === 'dispose')).toHaveLength(2);
});

test('why a GPU is not used, in the words of errors', async () => {
  const addon = fakeAddon({ gpus: 2, links: LINKS });
  const [first, second] = addon.gpus();
  addon.gpus = () => [first!, { ...second!, name: 'Tesla V100 1', architecture: '7.0' }];
  await devices(addon);
  expect(kinds()).toEqual(['host 0', 'gpu 0', 'gpu 1']);
  const why = "the addon has no code for GPU 'Tesla V100 1' (compute capability 7.0)";
  expect(lines).toContainEqual(expect.stringContaining(`gpu 1: not used: ${why}`));
  const asked = await failure(createEngine({ devices: [1] }));
  expect(asked).toMatchObject({ code: 'ERR_DEVICE', message: expect.stringContaining(`GPU 1 was asked for but ${why}`) });
  addon.gpus = () => [{ ...second!, ordinal: 0, architecture: '7.0' }];
  expect((await failure(createEngine({ device: 'gpu' }))).message).toMatch(
    /^GPUs were asked for but the addon has no code for GPU '/,
  );
  await using engine = await createEngine({ device: 'auto' });
  expect(engine.devices().map(({ kind }) => kind)).toEqual(['host']);
});

test('only what --device asks for', async () => {
  const addon = fakeAddon({ gpus: 2, links: LINKS });
  await devices(addon, '--device', 'gpu');
  expect(kinds()).toEqual(['gpu 0', 'gpu 1']);
  await devices(addon, '--device', 'cpu');
  expect(kinds()).toEqual(['host 0']);
  expect(lines.join()).not.toContain('GB/s');
});

test('links are measured once, and again with --measure', async () => {
  const addon = fakeAddon({ gpus: 2, links: LINKS });
  const measurements = (): number => addon.calls.filter((call) => call === 'measureLinks').length;
  await devices(addon);
  await devices(addon);
  expect(measurements()).toBe(1);
  await devices(addon, '--measure');
  expect(measurements()).toBe(2);
  expect(readdirSync(folder)).toHaveLength(1);
});

test('long rows of devices are short, and one GPU has no peers', () => {
  const sets = [set([0], 55, 55, 102), set([0, 1, 2, 3, 4, 5, 6, 7], 196, 113, 144), set([0, 2, 5], 150, 140, 160)];
  const text = describeLinks({ measuredAt: '2026-11-21T10:20:30.400Z', sets, peers: [] });
  expect(text).toContain('measured on 2026-11-21 10:20 UTC');
  expect(text).toContain('\n0 to 7       196      113           144\n');
  expect(text).toContain('\n0, 2, 5 ');
  expect(text).not.toContain('GPU to GPU');
});
