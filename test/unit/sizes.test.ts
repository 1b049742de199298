import { describe, expect, test } from 'vitest';
import { formatBytes, parseSize, resolveSize } from '../../lib/sizes.js';

describe('parseSize', () => {
  test.each([
    [1024, { bytes: 1024 }],
    ['64GiB', { bytes: 64 * 2 ** 30 }],
    ['500 MB', { bytes: 500e6 }],
    ['1.5kib', { bytes: 1536 }],
    ['7 b', { bytes: 7 }],
    [' 2TB ', { bytes: 2e12 }],
    ['80%', { share: 0.8 }],
    ['0.5 %', { share: 0.005 }],
    ['100%', { share: 1 }],
  ])('reads %j', (value, size) => {
    expect(parseSize(value)).toEqual(size);
  });

  test.each([
    0,
    -1,
    1.5,
    Number.NaN,
    Number.POSITIVE_INFINITY,
    2 ** 53,
    '0%',
    '101%',
    '',
    'GiB',
    '64',
    '64 XB',
    '-1GiB',
    '1e3MB',
    '9000000000TB',
    null,
    {},
    5n,
    true,
  ])('refuses %s', (value) => {
    expect(parseSize(value)).toBeUndefined();
  });
});

test('a share is of the whole', () => {
  expect(resolveSize({ share: 0.5 }, 1001)).toBe(500);
  expect(resolveSize({ share: 0.001 }, 10)).toBe(1);
  expect(resolveSize({ bytes: 7 }, 1001)).toBe(7);
});

test.each([
  [0, '0 bytes'],
  [1023, '1023 bytes'],
  [1536, '1.5 KiB'],
  [2 ** 30, '1 GiB'],
  [2 ** 30 - 1, '1 GiB'],
  [3.25 * 2 ** 50, '3.3 PiB'],
])('%d bytes are shown as %s', (bytes, shown) => {
  expect(formatBytes(bytes)).toBe(shown);
});
