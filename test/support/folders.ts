/** Folders of tests. */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach } from 'vitest';

/** A folder that is gone after the tests of a file, with one in it, `parts`, that is empty before each of them; `at` names a file there. */
export function foldersOf(name: string) {
  const folder = mkdtempSync(join(tmpdir(), `warpjoin-${name}-`));
  const parts = join(folder, 'parts');
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  beforeEach(() => {
    rmSync(parts, { recursive: true, force: true });
    mkdirSync(parts);
  });
  return { folder, parts, at: (file: string) => join(parts, file) };
}
