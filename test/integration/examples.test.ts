/** The programs of examples/ run as they are, and print what they are for. */
import { basename } from 'node:path';
import { describe, expect, test } from 'vitest';
import { programs, read, runProgram } from '../../scripts/docs-examples.mjs';

/** What each prints, in whole lines. */
const prints: Readonly<Record<string, string[]>> = {
  'cancel-on-disconnect.mjs': ['200 [{"user":7,"value":753},{"user":7,"value":1753}]', 'cancelled: the client has gone'],
  'dimension-on-gpu.mjs': [1, 2, 3]
    .map((day) => `day ${day}: 100000 orders, on the cpu`)
    .concat('there is no GPU: the processor did it'),
  'join-parquet-files.mjs': ['1 Grace 9.5', '2 Ada 12', '3 null 1'],
  'latest-row-per-key.mjs': ['a 2026-03-01T12:00:00Z 7', 'b 2026-03-01T10:00:00Z 4'],
  'results-over-http.mjs': [
    '[{"name":"Grace","points":"9007199254740993"},{"name":"Ada","points":12}]',
    '2 rows of name, points: 9007199254740993',
  ],
  'top-100.mjs': ['100 rows, from 999999 to 999900', 'algorithm: top'],
  'worker-thread.mjs': ['the worker has made 2 objects', 'Grace 20', 'Ada 5'],
};

describe('examples', () => {
  test('each has a line of what it prints here, and one in examples/README.md', () => {
    const names = programs.map((path) => basename(path));
    expect(names.sort()).toEqual(Object.keys(prints).sort());
    for (const name of names) expect(read('examples/README.md')).toContain(`[${name}](${name})`);
  });

  test.each(programs)('%s', { timeout: 60_000 }, async (path) => {
    expect((await runProgram(path)).trim().split('\n')).toEqual(prints[basename(path)]);
  });
});
