// Seeded random numbers: the same data in every process and on every machine.

/** xoshiro128** seeded through splitmix32; uniform 32-bit integers. */
export function random(seed) {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x9e3779b9) | 0;
    let z = state ^ (state >>> 16);
    z = Math.imul(z, 0x21f0aaad);
    z ^= z >>> 15;
    z = Math.imul(z, 0x735a2d97);
    return (z ^ (z >>> 15)) >>> 0;
  };
  let [a, b, c, d] = [next(), next(), next(), next()];
  const uint32 = () => {
    const mixed = Math.imul(b, 5);
    const result = Math.imul((mixed << 7) | (mixed >>> 25), 9) >>> 0;
    const shifted = b << 9;
    c ^= a;
    d ^= b;
    b ^= c;
    a ^= d;
    c ^= shifted;
    d = (d << 11) | (d >>> 21);
    return result;
  };
  return {
    uint32,
    /** Uniform in [0, 1), 53 bits. */
    unit: () => ((uint32() >>> 5) * 67108864 + (uint32() >>> 6)) / 9007199254740992,
    /** Uniform in [0, n), n up to 2^32; the bias is below n / 2^53. */
    below: (n) => Math.floor((((uint32() >>> 5) * 67108864 + (uint32() >>> 6)) / 9007199254740992) * n),
  };
}

/** 0 to n - 1 in random order. */
export function permutation(n, seed) {
  const { below } = random(seed);
  const values = Uint32Array.from({ length: n }, (_, i) => i);
  for (let i = n - 1; i > 0; i--) {
    const j = below(i + 1);
    const swapped = values[i];
    values[i] = values[j];
    values[j] = swapped;
  }
  return values;
}

/** Ranks 0 to n - 1 with probability proportional to 1 / (rank + 1): rejection-inversion (Hoermann and Derflinger, 1996). */
export function zipf(n, seed) {
  const { unit } = random(seed);
  const integral = Math.log; // of 1 / x
  const least = integral(1.5) - 1;
  const most = integral(n + 0.5);
  return () => {
    for (;;) {
      const u = most + unit() * (least - most);
      const x = Math.exp(u);
      const k = Math.min(n, Math.max(1, Math.round(x)));
      if (k - x <= 0 || u >= integral(k + 0.5) - 1 / k) return k - 1;
    }
  };
}

/** A column of 64-bit integers below 2^32, filled without BigInts. */
export function int64(length, value) {
  const words = new Uint32Array(length * 2);
  for (let i = 0; i < length; i++) words[2 * i] = value(i);
  return new BigInt64Array(words.buffer);
}
