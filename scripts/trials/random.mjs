// Random choices that a seed repeats, and the command line of trials.
import { parseArgs } from 'node:util';

/** Uniform numbers from 0 to 1 (mulberry32), and what is drawn with them. */
export function random(seed) {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  return {
    next,
    /** An integer below `end`. */
    below: (end) => Math.floor(next() * end),
    pick: (values) => values[Math.floor(next() * values.length)],
    chance: (share) => next() < share,
  };
}

/** Integers below what is asked for: the choices of one round, which a seed and the round's number repeat. */
export const ofRound = (seed, round) => random(seed * 1_000_003 + round).below;

/** The options of a trial, all numbers: `defaults` names them. A seed that is not given is drawn, and printed. */
export function trialOptions(defaults) {
  const all = { seed: Math.floor(Math.random() * 2 ** 32), ...defaults };
  const options = Object.fromEntries(Object.keys(all).map((name) => [name, { type: 'string', default: String(all[name]) }]));
  const { values } = parseArgs({ options });
  const numbers = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, Number(value)]));
  for (const [name, value] of Object.entries(numbers)) {
    if (!Number.isInteger(value) || value < 0) throw new Error(`Expected a number for --${name} but received ${values[name]}`);
  }
  return numbers;
}
