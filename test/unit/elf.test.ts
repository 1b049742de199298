/** What is said of files that are no addon, before the system maps them. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { elfProblem } from '../../lib/elf.js';

const addon = readFileSync('build/Release/warpjoin.node');
const folder = mkdtempSync(join(tmpdir(), 'warpjoin-elf-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function problem(bytes: Uint8Array): string | undefined {
  const path = join(folder, 'file.node');
  writeFileSync(path, bytes);
  return elfProblem(path);
}

test('an addon is fine', () => {
  expect(problem(addon)).toBeUndefined();
});

test.each([65, 4096, 100_000, addon.length >> 1])('an addon that ends after %d bytes', (length) => {
  expect(problem(addon.subarray(0, length))).toMatch(/^the file is damaged: it has [\d.]+ \w+ of at least [\d.]+ \w+$/);
});

test('files of another kind', () => {
  expect(problem(new Uint8Array())).toMatch(/^the file is damaged: it is no 64-bit ELF file$/);
  expect(problem(Buffer.from('<html>404 Not Found</html>'.repeat(10)))).toMatch(/no 64-bit ELF file/);
  const other = Buffer.from(addon);
  other.writeUInt16LE(process.arch === 'x64' ? 183 : 62, 18);
  expect(problem(other)).toBe(
    `the file is for ${process.arch === 'x64' ? 'arm64' : 'x64'}, and this Node.js for ${process.arch}`,
  );
  other.writeUInt16LE(8, 18);
  expect(problem(other)).toMatch(/for another processor/);
});

test('no file, and a directory', () => {
  expect(elfProblem(join(folder, 'nothing.node'))).toMatch(/^ENOENT/);
  expect(elfProblem(folder)).toMatch(/^EISDIR/);
});
