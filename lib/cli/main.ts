#!/usr/bin/env node
/** The `warpjoin` command. */
import { VERSION } from '../version.js';
import { parseCommandLine } from './arguments.js';
import { commandHelp, generalHelp } from './spec.js';
import { UsageError } from './usage.js';

const failed = 1;
const wrongUsage = 2;

/** Codes of errors that the command line itself caused. */
const usageCodes = new Set(['ERR_OPTION']);

type Signal = 'SIGINT' | 'SIGTERM';
const exitCodes: Readonly<Record<Signal, number>> = { SIGINT: 130, SIGTERM: 143 };

class Interrupted extends Error {
  constructor(readonly signal: Signal) {
    super('interrupted');
  }
}

/** How long an interrupted process may take to end by itself, in milliseconds. */
const patience = 500;

/** Ends the process at once. process.exit() waits for reads that are under way: a pipe without a writer never ends one. */
function die(signal: Signal): void {
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
}

async function main(argv: readonly string[]): Promise<number> {
  const interrupt = new AbortController();
  for (const signal of Object.keys(exitCodes) as Signal[]) {
    process.on(signal, () => {
      if (interrupt.signal.aborted) die(signal); // asked twice
      interrupt.abort(new Interrupted(signal));
    });
  }
  try {
    const request = parseCommandLine(argv);
    if (request.kind === 'version') console.log(VERSION);
    else if (request.kind === 'help') console.log(request.command ? commandHelp(request.command) : generalHelp(VERSION));
    else return await (await import('./commands.js')).run(request, interrupt.signal);
    return 0;
  } catch (error) {
    if (error instanceof Interrupted) {
      console.error('warpjoin: interrupted');
      setTimeout(() => die(error.signal), patience).unref();
      return exitCodes[error.signal];
    }
    const { message, code } = error as Error & { code?: string };
    console.error(`warpjoin: ${String(message ?? error).replace(/\s*\n\s*/g, ' ')}`);
    return error instanceof UsageError || (code && usageCodes.has(code)) ? wrongUsage : failed;
  }
}

// A reader that has seen enough (| head) is no failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) => process.exit(error.code === 'EPIPE' ? 0 : failed));

process.exitCode = await main(process.argv.slice(2));
