// What trials share: their options, and random numbers that a seed and a round give again.
import { parseArgs } from 'node:util';

/** `--seed N --rounds N`, or `--round N` for one round alone; and further switches. */
export function trialOptions(switches = []) {
  const { values } = parseArgs({
    options: {
      seed: { type: 'string' },
      rounds: { type: 'string' },
      round: { type: 'string' },
      ...Object.fromEntries(switches.map((name) => [name, { type: 'boolean' }])),
    },
  });
  const one = values.round !== undefined;
  return {
    ...values,
    seed: Number(values.seed ?? Date.now() % 1e9),
    first: one ? Number(values.round) : 0,
    rounds: one ? 1 : Number(values.rounds ?? 2000),
  };
}

/** Random whole numbers below what they are asked for: the same for the same seed and round. */
export function generator(seed, round) {
  let state = ((seed * 1_000_003 + round) % 2 ** 32) >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * below);
  };
}
