/**
 * Option schemas: one gives the TypeScript type, the validation and the documentation of a call's options.
 * Every refusal reads "Expected <what would do> for <option> but received <value>".
 */
import { CallerSignal, type Signal } from './abort.js';
import { readingFor, WarpjoinError } from './errors.js';
import { parseSize, SIZE, type Size } from './sizes.js';
import { didYouMean, list, quote, show } from './suggest.js';

declare const input: unique symbol;

export interface Option<In, Out = In> {
  /** What is accepted, in words. */
  readonly expected: string;
  readonly description: string;
  /** The value where the option is left out or undefined, unless it is required. */
  readonly fallback: Out;
  readonly required?: boolean;
  /** The accepted value, or undefined for one that isn't. May throw an error of its own that says more. */
  parse(value: unknown, name: string): Out | undefined;
  readonly [input]?: In;
}

// biome-ignore lint/suspicious/noExplicitAny: the options of a schema have nothing in common but their shape
export type Schema = Readonly<Record<string, Option<any, any>>>;
/** What a caller may pass. */
export type InputOf<S extends Schema> = { [K in keyof S]?: (S[K] extends Option<infer In, unknown> ? In : never) | undefined };
/** What the operators get: every option, with its default. */
export type Parsed<S extends Schema> = { [K in keyof S]: S[K] extends Option<unknown, infer Out> ? Out : never };

export function expected(what: string, name: string, received: unknown, hint = ''): WarpjoinError {
  return new WarpjoinError('ERR_OPTION', `Expected ${what} for ${name} but received ${show(received)}.${hint}`);
}

const readable = <T>(what: string, read: () => T): T =>
  readingFor('ERR_OPTION', `Expected plain values for ${what} but reading them threw`, read);

/** Checks `value` against the schema of `call` and fills in defaults. What it gives doesn't change with what the caller gave. */
export function parse<S extends Schema>(schema: S, call: string, value: unknown): Parsed<S> {
  return readable(`the options of ${call}`, () => parseObject(schema, call, value));
}

function parseObject<S extends Schema>(schema: S, call: string, value: unknown): Parsed<S> {
  if (value !== undefined && (typeof value !== 'object' || value === null || Array.isArray(value))) {
    throw expected('an object', `the options of ${call}`, value);
  }
  const given = (value ?? {}) as Record<string, unknown>;
  for (const name of Object.keys(given)) {
    if (!Object.hasOwn(schema, name)) {
      const names = Object.keys(schema);
      throw expected(`one of the options ${list(names, 20)}`, call, name, didYouMean(name, names));
    }
  }
  const parsed: Record<string, unknown> = {};
  for (const [name, option] of Object.entries(schema)) {
    parsed[name] = readable(name, () => {
      const one = given[name];
      if (one === undefined && !option.required) return option.fallback;
      const result = option.parse(one, name);
      if (result === undefined) throw expected(option.expected, name, one);
      return result;
    });
  }
  return parsed as Parsed<S>;
}

/** The option, which has to be given. */
export function required<In, Out>(option: Option<In, Out>): Option<In, Out> {
  return { ...option, required: true };
}

/** A subset of a schema, for a call that takes fewer options. */
export function pick<S extends Schema, K extends keyof S>(schema: S, names: readonly K[]): Pick<S, K> {
  return Object.fromEntries(names.map((name) => [name, schema[name]])) as unknown as Pick<S, K>;
}

/** A schema without one of its options. */
export function omit<S extends Schema, K extends keyof S>(schema: S, name: K): Omit<S, K> {
  const { [name]: _, ...rest } = schema;
  return rest;
}

export function choice<const V extends string>(
  values: readonly V[],
  fallback: NoInfer<V>,
  description: string,
  hints: Readonly<Record<string, string>> = {},
): Option<V> {
  const words = `one of ${values.map(quote).join(', ')}`;
  return {
    expected: words,
    description,
    fallback,
    parse(value, name) {
      if (!values.includes(value as V)) {
        const hint = typeof value === 'string' ? (hints[value] ?? didYouMean(value, values)) : '';
        throw expected(words, name, value, hint);
      }
      return value as V;
    },
  };
}

export function flag<F extends boolean | undefined>(fallback: F, description: string): Option<boolean, boolean | F> {
  return {
    expected: 'a boolean',
    description,
    fallback,
    parse: (value) => (typeof value === 'boolean' ? value : undefined),
  };
}

/** A boolean for all of something, or an array with one for each. */
export function flags(fallback: boolean, each: string, description: string): Option<boolean | readonly boolean[]> {
  return {
    expected: `a boolean or an array of as many booleans as ${each}s`,
    description,
    fallback,
    parse(value) {
      const all: unknown[] = Array.isArray(value) ? Array.from(value) : [value];
      if (!all.every((one) => typeof one === 'boolean')) return undefined;
      return Array.isArray(value) ? (all as boolean[]) : (value as boolean);
    },
  };
}

export function text<F extends string | undefined>(fallback: F, description: string): Option<string, string | F> {
  return {
    expected: 'a string that is not empty',
    description,
    fallback,
    parse: (value) => (typeof value === 'string' && value !== '' ? value : undefined),
  };
}

/** A column name or several. */
export function names(description: string): Option<string | readonly string[], readonly string[] | undefined> {
  return {
    expected: 'a column name or an array of at least one column name',
    description,
    fallback: undefined,
    parse(value) {
      const all = typeof value === 'string' ? [value] : Array.isArray(value) ? Array.from(value) : [];
      return all.length > 0 && all.every((name) => typeof name === 'string') ? all : undefined;
    },
  };
}

/** Like `names`, but always an array. */
export function nameList(description: string): Option<readonly string[], readonly string[] | undefined> {
  const several = names(description);
  return {
    expected: 'an array of at least one column name',
    description,
    fallback: undefined,
    parse: (value, name) => (Array.isArray(value) ? several.parse(value, name) : undefined),
  };
}

/** A whole number of at least `least`. */
export function count<F extends number | undefined>(
  fallback: F,
  least: number,
  description: string,
  most = Number.MAX_SAFE_INTEGER,
): Option<number, number | F> {
  return {
    expected:
      most === Number.MAX_SAFE_INTEGER ? `a whole number of at least ${least}` : `a whole number from ${least} to ${most}`,
    description,
    fallback,
    parse: (value) =>
      Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most ? (value as number) : undefined,
  };
}

/** Ordinals of devices, each once. */
export function ordinals(description: string): Option<readonly number[], readonly number[] | undefined> {
  return {
    expected: 'an array of one or more different device numbers',
    description,
    fallback: undefined,
    parse(value) {
      const all: unknown[] = Array.isArray(value) ? Array.from(value) : [];
      const isOrdinal = (ordinal: unknown): ordinal is number => Number.isSafeInteger(ordinal) && (ordinal as number) >= 0;
      return all.length > 0 && new Set(all).size === all.length && all.every(isOrdinal) ? all : undefined;
    },
  };
}

export function size<F extends Size | undefined>(fallback: F, description: string): Option<number | string, Size | F> {
  return { expected: SIZE, description, fallback, parse: (value) => parseSize(value) };
}

// biome-ignore lint/suspicious/noExplicitAny: any callback
export function callback<T extends (...args: any[]) => unknown>(description: string): Option<T, T | undefined> {
  return {
    expected: 'a function',
    description,
    fallback: undefined,
    parse: (value) => (typeof value === 'function' ? (value as T) : undefined),
  };
}

export function abortSignal(description: string): Option<AbortSignal, Signal | undefined> {
  return {
    expected: 'an AbortSignal',
    description,
    fallback: undefined,
    parse(value) {
      const signal = value as AbortSignal | null;
      const fits =
        typeof signal === 'object' && typeof signal?.aborted === 'boolean' && typeof signal.addEventListener === 'function';
      return fits ? new CallerSignal(signal) : undefined;
    },
  };
}
