/** Pages and charts as a headless browser shows them. */
import { execFile } from 'node:child_process';
import { accessSync, constants, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];

function find(): string | undefined {
  const paths = (process.env.PATH ?? '').split(delimiter).flatMap((folder) => NAMES.map((name) => join(folder, name)));
  return paths.find((path) => {
    try {
      accessSync(path, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

const browser = find();
/** For `test.skipIf`: a test that needs a browser says with `whyNoBrowser`, in its name, why it is skipped. */
export const hasNoBrowser = browser === undefined;
export const whyNoBrowser = hasNoBrowser ? ` (skipped: no ${NAMES.join(', ')} in PATH)` : '';

export interface Page<T> {
  /** The document as HTML, after its scripts ran. */
  dom: string;
  /** What the page wrote to the console: errors of scripts and of loading, too. */
  console: string[];
  /** What the probe gave. */
  probed: T;
}

/**
 * Opens a self-contained HTML page or SVG image. `probe` is a JavaScript expression that the page evaluates at its end; its value has
 * to be JSON: `[...document.querySelectorAll('table')].map((table) => table.getBoundingClientRect().height)`.
 */
export async function openPage<T = null>(path: string, probe = 'null', flags: readonly string[] = []): Promise<Page<T>> {
  const folder = mkdtempSync(join(tmpdir(), 'warpjoin-page-'));
  try {
    const source = readFileSync(path, 'utf8');
    const page = join(folder, 'page.html');
    const script = `document.documentElement.dataset.probed = encodeURIComponent(JSON.stringify(${probe}))`;
    writeFileSync(
      page,
      `${path.endsWith('.svg') ? '<!doctype html><meta charset="utf-8">' : ''}${source}<script>${script}</script>`,
    );
    const own = ['--headless', '--no-sandbox', '--disable-gpu', '--enable-logging=stderr', `--user-data-dir=${folder}/profile`];
    const { stdout, stderr } = await promisify(execFile)(browser!, [...own, ...flags, '--dump-dom', `file://${page}`], {
      maxBuffer: 1 << 28,
      timeout: 50_000,
    });
    const probed = /<html[^>]* data-probed="([^"]*)"/.exec(stdout)?.[1];
    const messages = [...stderr.matchAll(/:CONSOLE:\d+\] (.*)$/gm)].map(([, message]) => message!);
    if (probed === undefined) throw new Error(`The probe of ${path} gave nothing: ${messages.join('; ')}`);
    return { dom: stdout, console: messages, probed: JSON.parse(decodeURIComponent(probed)) as T };
  } finally {
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  }
}
