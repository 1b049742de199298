// Whether a trial calls all that the addon has: methods come and change their arguments.

/** What needs a GPU, and what is no call. */
const BESIDE = ['constructor', 'loseDevice'];

/** Throws where the engine has methods that are not among `tried`. */
export function requireAll(Engine, tried) {
  const names = Object.getOwnPropertyNames(Engine.prototype).filter((name) => !BESIDE.includes(name) && !tried.has(name));
  if (names.length > 0) throw new Error(`The trial doesn't call ${names.join(', ')}`);
}
