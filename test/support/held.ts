/** A promise that is settled from outside, for what has to wait until a test lets it go on. */
export function hold() {
  let letGo!: () => void;
  const held = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  return { held, letGo };
}
