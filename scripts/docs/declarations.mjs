// After tsc: completes the declarations in dist/. What the option schemas say becomes comments, which editors show: an option schema
// is an exported object of options (lib/schema.ts), and the types of a call's options are mapped from its type and keep its comments.
// Entry points get declarations for require(), too.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import ts from 'typescript';

const root = fileURLToPath(new URL('../..', import.meta.url));

const isOption = (value) => typeof value?.parse === 'function' && 'expected' in value && 'description' in value;
const isSchema = (value) => typeof value === 'object' && value !== null && Object.values(value).some(isOption);

/** What editors show of an option. */
function commentOf({ expected, description, fallback, required }, indent) {
  const hasDefault = !required && fallback !== undefined && (typeof fallback !== 'object' || Object.keys(fallback).length > 0);
  const value = typeof fallback === 'string' ? JSON.stringify(fallback) : String(fallback);
  const lines = [description, '', `Accepts ${expected}.`, ...(hasDefault ? ['', `@default ${value}`] : [])];
  const body = lines.map((line) => `${indent} * ${line}`.replaceAll('*/', '*\\/').trimEnd());
  return ['/**', ...body, `${indent} */`, indent].join('\n');
}

/** The declarations with a comment on each option of each schema. `values`: what the module exports. */
function withComments(path, text, values) {
  const file = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true);
  const edits = [];
  for (const { name, type } of file.statements
    .filter(ts.isVariableStatement)
    .flatMap((one) => one.declarationList.declarations)) {
    const schema = values[name.text];
    const seen = new Set();
    const visit = (node) => {
      if (ts.isPropertySignature(node) && /^(import\("[^"]+"\)\.)?Option</.test(node.type?.getText() ?? '')) {
        const option = node.name.text;
        if (!schema) throw new Error(`${path}: ${name.text} has the option ${option} but is not exported`);
        seen.add(option);
        const indent = text.slice(node.getFullStart(), node.getStart()).replace(/.*\n/s, '');
        const isNew = ts.getJSDocCommentsAndTags(node).length === 0;
        if (isNew && isOption(schema[option])) edits.push([node.getStart(), commentOf(schema[option], indent)]);
      }
      ts.forEachChild(node, visit);
    };
    if (type) visit(type);
    const unseen = isSchema(schema) && Object.keys(schema).find((option) => !seen.has(option));
    if (unseen)
      throw new Error(`${path}: the declared type of ${name.text}.${unseen} is not Option<...>, so nothing documents it`);
  }
  let made = text;
  for (const [at, comment] of edits.reverse()) made = made.slice(0, at) + comment + made.slice(at);
  return made;
}

const dist = join(root, 'dist');
const exportsOf = (path) => import(pathToFileURL(path.replace(/\.d\.ts$/, '.js')));
for (const name of readdirSync(dist, { recursive: true })) {
  if (!name.endsWith('.d.ts')) continue;
  const path = join(dist, name);
  const text = readFileSync(path, 'utf8');
  if (!/\bOption</.test(text) || /export interface Option</.test(text)) continue;
  writeFileSync(path, withComments(path, text, await exportsOf(path)));
}
for (const { types } of Object.values(JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).exports)) {
  if (!types?.require) continue;
  writeFileSync(join(root, types.require), forRequire(types.default, await exportsOf(join(root, types.default))));
}

/**
 * Declarations for CommonJS of an entry point, which is an ES module that require() takes: what has a value, by name, and all types.
 * They are those of the ES module, so that both kinds of modules can be in one program.
 */
function forRequire(types, values) {
  const from = `'./${basename(types).replace(/\.d\.ts$/, '.js')}'`;
  const mode = `{ 'resolution-mode': 'import' }`;
  const lines = Object.entries(values).map(([name, value]) => {
    const of = `import(${from}, { with: ${mode} }).${name}`;
    const isClass = typeof value === 'function' && /^class\b/.test(Function.prototype.toString.call(value));
    return `export declare const ${name}: typeof ${of};${isClass ? `\nexport type ${name} = ${of};` : ''}`;
  });
  return `export type * from ${from} with ${mode};\n${lines.join('\n')}\n`;
}
