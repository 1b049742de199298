// node scripts/docs-examples.mjs [--node PATH] [PAGE ...]: runs the examples of README.md and docs/, and the programs of examples/, on
// another Node.js, too.
//
// The blocks of a page run in order, as one module, in an empty folder from which the package's own name resolves. A block that
// imports a name again stands on its own: it begins another module.
// ```js      runs. `console.log(...); // text` at the start of a line has to print that text.
// ```text    after one of these is all that it prints; numbers, units and widths of columns may be others.
// ```js gpu  needs a GPU: only its syntax is checked.
// ```sh      commands: test/integration/docs.test.ts shows those of warpjoin to the command line's parser.
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs, promisify } from 'node:util';

export const root = fileURLToPath(new URL('..', import.meta.url));
export const read = (page) => readFileSync(join(root, page), 'utf8');

/** README.md and the pages of docs/, by their paths from the root; without those that no person writes, or that are history. */
export const pages = [
  'README.md',
  ...readdirSync(join(root, 'docs'), { recursive: true })
    .filter((name) => name.endsWith('.md') && !/^(api|decisions)\//.test(name))
    .sort()
    .map((name) => `docs/${name}`),
];

/** The fenced blocks of a page: what stands behind the fence, what is in it, and the line of the page that it begins at. */
export function blocksOf(page) {
  const text = read(page);
  return [...text.matchAll(/^```(.*)\n([\s\S]*?)^```$/gm)].map(({ 1: kind, 2: code, index }) => ({
    kind,
    code,
    line: text.slice(0, index).split('\n').length + 1,
  }));
}

/** A page's examples, and what they are to print: lines of their comments, or all that the next block says. */
export function examplesOf(page) {
  const blocks = blocksOf(page);
  return blocks.flatMap(({ kind, code, line }, index) => {
    if (kind !== 'js' && kind !== 'js gpu') return [];
    const printed = [...code.matchAll(/^console\.log\(.*\); \/\/ (.*)$/gm)].map(([, text]) => text);
    const next = blocks[index + 1];
    return [{ code, line, needsGpu: kind === 'js gpu', printed, output: next?.kind === 'text' ? next.code : undefined }];
  });
}

const IMPORT = /^import ([^;]*) from '[^']*';\n/gm;
const SEPARATOR = '\u001e';

/** The names that a block imports. */
const importedBy = (code) => [...code.matchAll(IMPORT)].flatMap(([, names]) => names.match(/[\w$]+/g));

/** A page's examples by the modules that they make up: one that imports a name again stands on its own, and begins another. */
function modulesOf(examples) {
  const modules = [];
  let imported;
  for (const example of examples) {
    const names = importedBy(example.code);
    if (!imported || names.some((name) => imported.has(name))) {
      modules.push([]);
      imported = new Set();
    }
    for (const name of names) imported.add(name);
    modules.at(-1).push(example);
  }
  return modules;
}

/** The code of a module. What needs a GPU is in functions that nobody calls. */
const codeOf = (examples) =>
  examples
    .map(({ code, needsGpu }, index) => {
      if (!needsGpu) return `${code}\nconsole.log('${SEPARATOR}');\n`;
      const imports = [...code.matchAll(IMPORT)].map(([statement]) => statement);
      return `${imports.join('')}const example${index} = async () => {\n${code.replace(IMPORT, '')}\n};\n`;
    })
    .join('\n');

/** Lines as far as they don't differ from machine to machine. */
const alike = (text) =>
  text
    .trim()
    .split('\n')
    .map((line) =>
      line
        .replace(/\d[\d,.]*/g, '0')
        .replace(/0 (bytes|[KMGT]iB)/g, '0 bytes')
        .replace(/([ ─-])\1+/g, '$1')
        .trim(),
    )
    .join('\n');

/** Runs the examples of a page; throws with the line of the page where one fails or prints something else. */
export async function runExamples(page, node = process.execPath) {
  mkdirSync(join(root, 'build'), { recursive: true });
  const folder = mkdtempSync(join(root, 'build', 'docs-examples-'));
  try {
    for (const examples of modulesOf(examplesOf(page))) {
      const file = join(folder, 'page.mjs');
      writeFileSync(file, codeOf(examples));
      const { stdout } = await promisify(execFile)(node, [file], { cwd: folder, maxBuffer: 1 << 26 }).catch((error) => {
        throw new Error(`${page}:${examples[0].line}: ${error.stderr || error.message}`);
      });
      const outputs = stdout.split(`${SEPARATOR}\n`);
      for (const example of examples.filter(({ needsGpu }) => !needsGpu)) check(page, example, outputs.shift());
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Throws where an example has printed something else than it says. */
function check(page, { line, printed, output }, got) {
  const lines = got.split('\n');
  for (const text of printed) {
    if (!lines.includes(text)) throw new Error(`${page}:${line}: expected the example to print\n${text}\nbut it printed\n${got}`);
  }
  if (output !== undefined && alike(output) !== alike(got)) {
    throw new Error(`${page}:${line}: expected the example to print\n${output}\nbut it printed\n${got}`);
  }
}

/** Words of a command, as a shell would take them apart, where nothing is expanded but quotes. */
const wordsOf = (command) =>
  [...command.matchAll(/(?:"[^"]*"|'[^']*'|[^\s"'])+/g)].map(([word]) => word.replace(/"([^"]*)"|'([^']*)'/g, '$1$2'));

/** The arguments of each warpjoin command in a page's sh blocks, with the line of the page. */
export function commandsOf(page) {
  return blocksOf(page)
    .filter(({ kind }) => kind === 'sh')
    .flatMap(({ code, line }) =>
      code.split('\n').flatMap((text, index) =>
        text
          .replace(/(^|\s)#.*/, '')
          .split(/[|;]|&&/)
          .map((command) => wordsOf(command.replace(/[<>]\s*\S+/g, '')))
          .filter((words) => ['npx', undefined].includes(words[words.indexOf('warpjoin') - 1]) && words.includes('warpjoin'))
          .map((words) => ({ line: line + index, words: words.slice(words.indexOf('warpjoin') + 1) })),
      ),
    );
}

/** The programs of examples/, by their paths from the root. */
export const programs = readdirSync(join(root, 'examples'))
  .filter((name) => name.endsWith('.mjs'))
  .map((name) => `examples/${name}`);

/** What a program prints, where there are no GPUs. */
export async function runProgram(path, node = process.execPath) {
  const env = { ...process.env, CUDA_VISIBLE_DEVICES: '', HIP_VISIBLE_DEVICES: '' };
  const { stdout, stderr } = await promisify(execFile)(node, [join(root, path)], { env });
  if (stderr !== '') throw new Error(`${path}: ${stderr}`);
  return stdout;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values, positionals } = parseArgs({ options: { node: { type: 'string' } }, allowPositionals: true });
  for (const path of positionals.length > 0 ? positionals : [...pages, ...programs]) {
    try {
      await (path.endsWith('.mjs') ? runProgram : runExamples)(path, values.node);
      console.log(`ok   ${path}`);
    } catch (error) {
      process.exitCode = 1;
      console.log(`FAIL ${error.message}`);
    }
  }
}
