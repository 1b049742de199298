/** Which GPUs an addon has code for. */
import { expect, test } from 'vitest';
import { codeFor, describeArchitectures, gpusOf } from '../../lib/gpus.js';
import { fakeSystem, gpuAddon } from '../support/fake-system.js';

test.each([
  // Machine code is for later minor versions, PTX for all later ones.
  ['9.0', '90', 'machine'],
  ['9.0', '90-real', 'machine'],
  ['9.0', '80-real', 'none'],
  ['8.9', '80-real', 'machine'],
  ['8.0', '86-real', 'none'],
  ['8.0', '75-real,86', 'none'],
  ['9.0', '80', 'ptx'],
  ['9.0', '80-virtual', 'ptx'],
  ['9.0', '90-virtual', 'ptx'],
  ['9.0', '75,90-real', 'machine'],
  ['12.0', '75-real,90', 'ptx'],
  ['12.1', '120', 'machine'],
  ['10.0', '120', 'none'],
  // For one architecture, or a family, alone.
  ['9.0', '90a', 'machine'],
  ['10.0', '90a', 'none'],
  ['10.3', '100a', 'none'],
  ['10.3', '100f', 'machine'],
  ['12.0', '100f', 'none'],
  ['9.0', 'all-major', 'machine'],
  ['gfx90a', 'gfx90a', 'machine'],
  ['gfx90a', 'gfx942,gfx90a:xnack+', 'machine'],
  ['gfx942', 'gfx90a', 'none'],
  ['', '', 'machine'],
  ['9.0', '', 'none'],
] as const)('%s and code for "%s": %s', (architecture, architectures, code) => {
  expect(codeFor(architecture, architectures)).toBe(code);
});

test.each([
  ['75-real,80-real,120', '7.5, 8.0, 12.0 and later'],
  ['90-real', '9.0'],
  ['90a,90', '9.0a, 9.0 and later'],
  ['gfx90a,gfx942', 'gfx90a, gfx942'],
])('%s is "%s"', (architectures, text) => {
  expect(describeArchitectures(architectures)).toBe(text);
});

test('files are read only where there is no GPU', () => {
  const read = () => expect.fail('a file was read');
  const system = { ...fakeSystem(), readFile: read, list: read, canAccess: read };
  const { usable, refused, problem } = gpusOf(gpuAddon([{}, { architecture: '5.2' }]), system);
  expect(usable.map(({ ordinal }) => ordinal)).toEqual([0]);
  expect(refused.map(({ gpu }) => gpu.ordinal)).toEqual([1]);
  expect(problem).toBeUndefined();
});
