import { expect, test } from 'vitest';
import { didYouMean, editDistance, list, nearest, show } from '../../lib/suggest.js';

test.each([
  ['', '', 0],
  ['abc', 'ABC', 0],
  ['kitten', 'sitting', 3],
  ['how', 'hwo', 1],
  ['left', '', 4],
])('%s is %s after %d edits', (a, b, edits) => {
  expect(editDistance(a, b)).toBe(edits);
  expect(editDistance(b, a)).toBe(edits);
});

test('the nearest name has to be near', () => {
  expect(nearest('inenr', ['left', 'inner', 'full'])).toBe('inner');
  expect(nearest('customer_ID', ['id', 'customer_id'])).toBe('customer_id');
  expect(nearest('x', ['abc', 'inner'])).toBeUndefined();
  expect(nearest('outer', ['left', 'inner', 'full'])).toBeUndefined();
  expect(didYouMean('zzz', ['a'])).toBe('');
});

test('lists and values are shown short', () => {
  expect(list(['a'])).toBe('"a"');
  expect(list(['a', 'b', 'c'])).toBe('"a", "b" and "c"');
  expect(list(['a', 'b', 'c', 'd'], 2)).toBe('"a", "b" and 2 more');
  expect(show([1, 'x'])).toBe('[1, "x"]');
  expect(show(new Array(100))).toBe('an array of 100');
  expect(show(new Map())).toBe('an object of type Map');
  expect(show(Object.create(null))).toBe('an object of type Object');
  expect(show('y'.repeat(100)).length).toBeLessThan(70);
  expect(show(5n)).toBe('5n');
});
