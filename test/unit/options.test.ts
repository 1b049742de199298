import { describe, expect, test } from 'vitest';
import { WarpjoinError } from '../../lib/errors.js';
import {
  engineSchema,
  joinCountSchema,
  joinKeysSchema,
  joinSchema,
  joinSettings,
  sortSchema,
  sortSettings,
} from '../../lib/options.js';
import { parse } from '../../lib/schema.js';

function refusal(run: () => unknown): { code: string; message: string } {
  try {
    run();
  } catch (error) {
    expect(error).toBeInstanceOf(WarpjoinError);
    return error as WarpjoinError;
  }
  throw new Error('Expected a refusal');
}
const join = (options: unknown) => joinSettings(joinSchema, 'join', options);
const sort = (options: unknown) => sortSettings(sortSchema, 'sort', options);
const engine = (options: unknown) => parse(engineSchema, 'createEngine', options);

describe('join options', () => {
  test('defaults', () => {
    expect(join({ on: 'id' })).toMatchObject({
      how: 'inner',
      keys: [{ left: 'id', right: 'id', nullsEqual: false }],
      suffix: '_right',
      coalesce: true,
      select: undefined,
      maxOutputRows: Number.POSITIVE_INFINITY,
      algorithm: 'auto',
      buildSide: 'auto',
    });
    expect(join({ on: ['id'], how: 'full' }).coalesce).toBe(false);
    expect(join({ on: 'id', how: 'full', coalesce: true }).coalesce).toBe(true);
    expect(join({ leftOn: 'a', rightOn: ['b'], how: undefined }).keys).toEqual([{ left: 'a', right: 'b', nullsEqual: false }]);
    expect(join({ how: 'cross' }).keys).toBeNull();
  });

  test.each([
    [undefined, 'Expected on, or leftOn and rightOn, for join but received none of them.'],
    ['id', 'Expected an object for the options of join but received "id".'],
    [{ on: 'id', hwo: 'left' }, /^Expected one of the options "on", .* for join but received "hwo"\. Did you mean "how"\?$/],
    [{ on: 'id', how: 'iner' }, /^Expected one of "inner", .*"cross" for how but received "iner"\. Did you mean "inner"\?$/],
    [{ on: 'id', how: 'outer' }, /but received "outer"\. Did you mean "full"\?$/],
    [{ on: 'id', how: 7 }, /for how but received 7\.$/],
    [{ on: [] }, 'Expected a column name or an array of at least one column name for on but received [].'],
    [{ on: 3 }, /for on but received 3\.$/],
    [{ on: ['a', 2] }, /for on but received \["a", 2\]\.$/],
    [{ on: 'a', leftOn: 'b' }, 'Expected on, or leftOn and rightOn, for join but received both.'],
    [{ leftOn: 'b' }, 'Expected on, or leftOn and rightOn, for join but received leftOn without rightOn.'],
    [{ rightOn: 'b' }, 'Expected on, or leftOn and rightOn, for join but received rightOn without leftOn.'],
    [{ leftOn: ['a', 'b'], rightOn: 'c' }, 'Expected as many columns as leftOn has (2) for rightOn but received ["c"].'],
    [{ how: 'cross', on: 'a' }, /^Expected neither on nor leftOn and rightOn for join with how "cross"/],
    [{ how: 'cross', coalesce: true }, /^Expected no coalesce for join with how "cross"/],
    [{ how: 'cross', validate: '1:m' }, 'Expected no validate for join with how "cross" but received "1:m".'],
    [{ how: 'cross', algorithm: 'sort-merge' }, /^Expected no algorithm for join with how "cross"/],
    [{ how: 'cross', algorithm: 'triton' }, /^Expected no algorithm for join with how "cross" but received "triton"/],
    [{ on: 'a', suffix: '' }, 'Expected a string that is not empty for suffix but received "".'],
    [{ on: 'a', coalesce: 'yes' }, 'Expected a boolean for coalesce but received "yes".'],
    [{ on: 'a', select: 'b' }, 'Expected an array of at least one column name for select but received "b".'],
    [{ on: 'a', select: [] }, /for select but received \[\]\.$/],
    [{ on: 'a', maxOutputRows: -1 }, 'Expected a whole number of at least 0 for maxOutputRows but received -1.'],
    [{ on: 'a', maxOutputRows: 1.5 }, /for maxOutputRows but received 1.5/],
    [
      { on: 'a', algorithm: 'hash' },
      /^Expected one of "auto", "radix-hash", "triton", "sort-merge" for algorithm but received "hash"/,
    ],
    [{ on: 'a', signal: {} }, 'Expected an AbortSignal for signal but received an object of type Object.'],
    [{ on: 'a', onProgress: true }, 'Expected a function for onProgress but received true.'],
    [{ on: 'a', nullsEqual: 1 }, 'Expected a boolean or an array of as many booleans as keys for nullsEqual but received 1.'],
    [
      { on: ['a', 'b'], nullsEqual: [true] },
      'Expected a boolean, or one for each of the keys (2) for nullsEqual but received [true].',
    ],
    [{ on: ['a', 'b', 'a'] }, 'Expected each column once for on but received "a".'],
    [{ leftOn: ['a', 'a'], rightOn: ['b', 'c'] }, 'Expected each column once for leftOn but received "a".'],
    [{ on: 'a', maintainOrder: 'both' }, /^Expected one of "none", "left", .* for maintainOrder but received "both"/],
    [{ on: 'a', limit: -1 }, 'Expected a whole number of at least 0 for limit but received -1.'],
    [{ on: 'a', offset: 0.5 }, 'Expected a whole number of at least 0 for offset but received 0.5.'],
    [{ on: 'a', validate: '1:2' }, /for validate but received "1:2"/],
  ])('%j is refused', (options, message) => {
    const error = refusal(() => join(options));
    expect(error.code).toBe('ERR_OPTION');
    expect(error.message).toMatch(message);
  });

  test.each([])('%j is for later', (options, message) => {
    expect(refusal(() => join(options))).toMatchObject({ code: 'ERR_NOT_SUPPORTED', message });
  });

  test('several keys, whose nulls are equal or not', () => {
    expect(join({ on: ['a', 'b'], nullsEqual: true }).keys).toEqual([
      { left: 'a', right: 'a', nullsEqual: true },
      { left: 'b', right: 'b', nullsEqual: true },
    ]);
    expect(join({ leftOn: ['a', 'b'], rightOn: ['c', 'd'], nullsEqual: [false, true] }).keys).toEqual([
      { left: 'a', right: 'c', nullsEqual: false },
      { left: 'b', right: 'd', nullsEqual: true },
    ]);
  });

  test('maintainOrder names a side', () => {
    const order = (how: string, maintainOrder: string) => join({ on: 'a', how, maintainOrder }).order;
    expect(['none', 'left', 'right', 'left_right', 'right_left'].map((of) => order('full', of))).toEqual([
      null,
      'left',
      'right',
      'left',
      'right',
    ]);
    expect(order('semi', 'right')).toBe('left');
    expect(order('anti', 'right_left')).toBe('left');
  });

  test('what is off by default may be said', () => {
    expect(() => join({ on: 'a', nullsEqual: false, validate: 'm:m', maintainOrder: 'none' })).not.toThrow();
  });

  test('calls without a table take fewer options', () => {
    const error = refusal(() => joinSettings(joinCountSchema, 'joinCount', { on: 'a', suffix: '_r' }));
    expect(error.message).toMatch(/^Expected one of the options .* for joinCount but received "suffix"/);
    expect(joinSettings(joinCountSchema, 'joinCount', { on: 'a', how: 'full' })).toMatchObject({ how: 'full', coalesce: false });
    expect(refusal(() => parse(joinKeysSchema, 'joinKeys', { how: 'left' })).message).toContain('joinIndices and join take it');
  });

  test('names that objects inherit are no options', () => {
    expect(refusal(() => join({ on: 'a', constructor: 1 })).message).toContain('"constructor"');
  });
});

describe('sort options', () => {
  test('names and columns', () => {
    expect(sort({ by: 'a' }).by).toEqual([{ column: 'a', descending: false, nullsLast: true }]);
    expect(sort({ by: ['a', { column: 'b', descending: true, nullsLast: false }] }).by).toEqual([
      { column: 'a', descending: false, nullsLast: true },
      { column: 'b', descending: true, nullsLast: false },
    ]);
  });

  test.each([
    [{}, /^Expected a column name, a \{ column, descending, nullsLast \} .* for by but received undefined/],
    [{ by: [] }, /for by but received \[\]/],
    [{ by: 5 }, /for by but received 5/],
    [{ by: { descending: true } }, 'Expected a string that is not empty for column but received undefined.'],
    [{ by: { column: 'a', desc: true } }, /for a column of by but received "desc"/],
    [{ by: { column: 'a', descending: 'yes' } }, 'Expected a boolean for descending but received "yes".'],
    [{ by: ['a', 'a'] }, 'Expected each column once for by but received "a".'],
    [{ by: 'a', algorithm: 'quick' }, /for algorithm but received "quick"/],
    [{ by: 'a', sellect: ['b'] }, /Did you mean "select"\?$/],
  ])('%j is refused', (options, message) => {
    const error = refusal(() => sort(options));
    expect(error.code).toBe('ERR_OPTION');
    expect(error.message).toMatch(message);
  });

  test('limit and offset are whole numbers', () => {
    expect(sort({ by: 'a' })).toMatchObject({ limit: Number.POSITIVE_INFINITY, offset: 0 });
    expect(sort({ by: 'a', limit: 0, offset: 7 })).toMatchObject({ limit: 0, offset: 7 });
    for (const [name, value] of [
      ['limit', -1],
      ['limit', 1.5],
      ['offset', '3'],
      ['offset', Number.NaN],
    ] as const) {
      const error = refusal(() => sort({ by: 'a', [name]: value }));
      expect(error.code).toBe('ERR_OPTION');
      expect(error.message).toContain(`Expected a whole number of at least 0 for ${name} but received`);
    }
  });
});

describe('engine options', () => {
  test('defaults', () => {
    expect(engine(undefined)).toEqual({
      device: 'auto',
      hostDevices: 1,
      memoryLimit: undefined,
      fallback: 'raise',
    });
  });

  test.each(['memoryLimit', 'deviceMemoryLimit'])('%s has to be a size', (name) => {
    for (const value of ['lots', '64', '64 XB', 0, -5, '0%', '120%', Number.NaN, {}, 1.5]) {
      const error = refusal(() => engine({ [name]: value }));
      expect(error.code).toBe('ERR_OPTION');
      expect(error.message).toMatch(
        `Expected a size: a positive number of bytes, or a string like '64GiB', '500 MB' or '80%' for ${name} but received`,
      );
    }
    expect(engine({ [name]: '2 GiB' })).toMatchObject({ [name]: { bytes: 2 ** 31 } });
  });

  test.each([
    [{ device: 'cuda' }, 'Expected one of "auto", "gpu", "cpu" for device but received "cuda".'],
    [{ hostDevices: 0 }, 'Expected a whole number from 1 to 64 for hostDevices but received 0.'],
    [{ hostDevices: 65 }, /for hostDevices but received 65/],
    [{ threads: 'all' }, /for threads but received "all"/],
    [{ fallback: 'maybe' }, /for fallback but received "maybe"/],
    [{ memorylimit: '1GiB' }, /Did you mean "memoryLimit"\?$/],
  ])('%j is refused', (options, message) => {
    const error = refusal(() => engine(options));
    expect(error.code).toBe('ERR_OPTION');
    expect(error.message).toMatch(message);
  });
});

test('every option says what it is', () => {
  for (const schema of [joinSchema, sortSchema, engineSchema]) {
    for (const [name, option] of Object.entries(schema)) {
      expect(option.description, name).toMatch(/\.$/);
      expect(option.expected, name).not.toBe('');
    }
  }
});
