// npm run docs: docs/api/index.html, the reference of every export of every entry point of package.json, from the declarations in
// dist/ and their comments. `--out FOLDER` writes elsewhere.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import ts from 'typescript';

const root = fileURLToPath(new URL('../..', import.meta.url));
const { out } = parseArgs({ options: { out: { type: 'string', default: join(root, 'docs', 'api') } } }).values;
const { name: packageName, version, exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
const { errorCodes } = await import(pathToFileURL(join(root, 'dist', 'errors.js')));

/** The declarations of an entry of "exports". */
const typesOf = ({ types }) => types?.default ?? types;
const entries = Object.entries(exports)
  .map(([path, entry]) => ({ name: `${packageName}${path.slice(1)}`, types: typesOf(entry) }))
  .filter(({ types }) => types?.endsWith('.d.ts'))
  .map(({ name, types }) => ({ name, path: join(root, types) }));
const program = ts.createProgram(
  entries.map(({ path }) => path),
  {
    module: ts.ModuleKind.NodeNext,
    target: ts.ScriptTarget.ES2022,
    lib: ['lib.es2023.d.ts', 'lib.esnext.disposable.d.ts'],
    types: ['node'],
    skipLibCheck: true,
    strict: true,
  },
);
const checker = program.getTypeChecker();

const html = (text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
const idOf = (entry, name) => `${entry}.${name}`.replace(/[^\w.]/g, '-');
/** Ids of the exports by name. */
const ids = new Map();

/** A comment's text in a line: `code`, links, names of exports. */
function inline(text) {
  return html(text)
    .replace(/\{@link ([\w.]+) ?\}/g, '`$1`')
    .replace(/`([^`]+)`/g, (_, code) => `<code>${linked(code)}</code>`)
    .replace(/\[([^\]]+)\]\((https?:[^)]+)\)/g, '<a href="$2">$1</a>');
}

/** Escaped code with links to the exports that it names. */
function linked(code) {
  return code.replace(/\b[A-Za-z]\w+\b(?!\??:)/g, (name) => (ids.has(name) ? `<a href="#${ids.get(name)}">${name}</a>` : name));
}

const table = (head, rows, attributes = '') =>
  `<div class="wide"><table${attributes}><thead><tr>${head.map((cell) => `<th>${cell}</th>`).join('')}</tr></thead><tbody>${rows
    .map((cells) => `<tr>${cells.map((cell) => `<td>${cell}</td>`).join('')}</tr>`)
    .join('')}</tbody></table></div>`;

/** A doc comment as HTML: paragraphs, indented code and tables. */
function prose(text) {
  const cells = (line) =>
    line
      .trim()
      .slice(1, -1)
      .split(/(?<!\\)\|/)
      .map((cell) => inline(cell.trim().replaceAll('\\|', '|')));
  return text
    .split(/\n\s*\n/)
    .map((block) => {
      const lines = block.split('\n');
      if (lines.every((line) => /^ {4}/.test(line))) return `<pre>${html(lines.map((line) => line.slice(4)).join('\n'))}</pre>`;
      if (lines[0].trimStart().startsWith('|')) return table(cells(lines[0]), lines.slice(2).map(cells));
      return `<p>${inline(block)}</p>`;
    })
    .join('\n');
}

const docOf = (of) => ts.displayPartsToString(of?.getDocumentationComment(checker));
const tagOf = (symbol, name) => symbol.getJsDocTags(checker).find((tag) => tag.name === name);
const isInternal = (symbol) => tagOf(symbol, 'internal') !== undefined;

/** The properties of a type: of each member of a union. */
function propertiesOf(type) {
  const constraint = checker.getBaseConstraintOfType(type) ?? type;
  const members = constraint.isUnion() ? constraint.types : [constraint];
  const found = new Map();
  for (const member of members) {
    if (member.flags & (ts.TypeFlags.Undefined | ts.TypeFlags.Null)) continue;
    for (const property of checker.getPropertiesOfType(member)) {
      const before = found.get(property.name) ?? { property, types: new Set(), isRequired: true };
      const type = checker.getTypeOfSymbol(property);
      before.types.add(checker.typeToString(checker.getNonNullableType(type), undefined, ts.TypeFormatFlags.NoTruncation));
      before.isRequired &&= !(property.flags & ts.SymbolFlags.Optional);
      found.set(property.name, before);
    }
    // Options that only some members have are optional.
    for (const [name, one] of found) if (!checker.getPropertyOfType(member, name)) one.isRequired = false;
  }
  return [...found.values()].filter(({ property }) => !isInternal(property) && !property.name.startsWith('__@'));
}

/** The table of options: what a comment says as "Accepts ..." is its second column, or else the type. */
function optionTable(name, type) {
  const rows = propertiesOf(type).map(({ property, types, isRequired }) => {
    const [, description, accepted] = /^(.*?)(?:\n\nAccepts (.*)\.)?$/s.exec(docOf(property));
    const value = tagOf(property, 'default');
    const fallback = isRequired ? 'required' : value ? `<code>${html(ts.displayPartsToString(value.text))}</code>` : '';
    const what = accepted
      ? inline(accepted)
      : `<code>${linked(html([...types].filter((one) => one !== 'never').join(' | ')))}</code>`;
    return [`<code>${property.name}</code>`, what, fallback, inline(description)];
  });
  return rows.length === 0
    ? ''
    : table(['option', 'accepts', 'default', 'description'], rows, ` class="options" data-of="${name}"`);
}

/** A type's text, with the constraints of type parameters in their place and without type arguments. */
function typeText(node, constraints) {
  if (!node) return 'unknown';
  const name = ts.isTypeReferenceNode(node) ? node.typeName.getText() : '';
  if (constraints.get(name)) return typeText(constraints.get(name), constraints);
  if (name === 'Promise') return `Promise<${typeText(node.typeArguments[0], constraints)}>`;
  let text = node.getText().replace(/import\("[^"]+"\)\./g, '');
  if (constraints.size === 0) return text;
  for (let before = ''; before !== text; ) [before, text] = [text, text.replace(/<[^<>]*>/g, '')];
  return text;
}

/** `name(parameters): result`: type parameters, which only carry the columns' types along, are left out. */
function signatureOf(name, signature) {
  const { typeParameters = [], parameters, type } = signature.getDeclaration();
  const constraints = new Map(typeParameters.map((one) => [one.name.text, one.constraint]));
  const options = `${name[0].toUpperCase()}${name.slice(1)}Options`;
  const shown = parameters.map((one) => {
    const isNamed = one.name.getText() === 'options' && ids.has(options);
    return `${one.name.getText()}${one.questionToken ? '?' : ''}: ${isNamed ? options : typeText(one.type, constraints)}`;
  });
  return linked(html(`${name}(${shown.join(', ')}): ${typeText(type, constraints)}`));
}

/** A function or method: its signatures, comment and options. */
function callable(name, type, doc) {
  const signatures = type.getCallSignatures();
  const shown = new Set();
  const parts = signatures.map((signature) => {
    const options = signature.getParameters().find((parameter) => parameter.name === 'options');
    const optionType = options && checker.getTypeOfSymbol(options);
    const own = docOf(signature) || doc;
    const text = shown.has(own) ? '' : prose(own);
    shown.add(own);
    return `<pre class="signature">${signatureOf(name, signature)}</pre>${text}${optionType ? optionTable(name, optionType) : ''}`;
  });
  return parts.join('\n');
}

function members(name, type) {
  const [methods, values] = [[], []];
  for (const one of propertiesOf(type)) {
    const of = checker.getTypeOfSymbol(one.property);
    (one.property.flags & ts.SymbolFlags.Method ? methods : values).push({ ...one, of });
  }
  const rows = values.map(({ property, types }) => [
    `<code>${property.name}</code>`,
    `<code>${linked(html([...types].join(' | ')))}</code>`,
    inline(docOf(property)),
  ]);
  const list = rows.length === 0 ? '' : table(['property', 'type', 'description'], rows, ` class="properties" data-of="${name}"`);
  const calls = methods.map(
    ({ property, of }) =>
      `<section id="${ids.get(name)}.${property.name}"><h4>${name}.${property.name}()</h4>${callable(property.name, of, docOf(property))}</section>`,
  );
  return list + calls.join('\n');
}

const kinds = { function: 'Functions', class: 'Classes', type: 'Types', value: 'Values' };

function described(symbol) {
  const name = symbol.name;
  const target = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
  const doc = docOf(target);
  if (target.flags & ts.SymbolFlags.Class) {
    return { name, kind: 'class', html: prose(doc) + members(name, checker.getDeclaredTypeOfSymbol(target)) };
  }
  if (target.flags & ts.SymbolFlags.Value) {
    const type = checker.getTypeOfSymbol(target);
    if (type.getCallSignatures().length > 0) return { name, kind: 'function', html: callable(name, type, doc) };
    return {
      name,
      kind: 'value',
      html: `<pre class="signature">${linked(html(`${name}: ${checker.typeToString(type)}`))}</pre>${prose(doc)}`,
    };
  }
  const type = checker.getDeclaredTypeOfSymbol(target);
  if (name.endsWith('Options')) return { name, kind: 'type', html: prose(doc) + optionTable(name, type) };
  if (target.flags & ts.SymbolFlags.Interface) return { name, kind: 'type', html: prose(doc) + members(name, type) };
  const literals = type.isUnion() && type.types.every((one) => one.isStringLiteral());
  const text = literals
    ? `type ${name} = ${type.types.map(({ value }) => JSON.stringify(value)).join(' | ')}`
    : target.declarations[0].getText().replace(/^export /, '');
  return { name, kind: 'type', html: `<pre class="signature">${linked(html(text))}</pre>${prose(doc)}` };
}

const modules = entries.map(({ name, path }) => {
  const file = checker.getSymbolAtLocation(program.getSourceFile(path));
  const symbols = checker.getExportsOfModule(file).sort((a, b) => (a.name < b.name ? -1 : 1));
  return {
    name,
    symbols,
    doc:
      /^\/\*\*\n?(.*?)\*\//s
        .exec(readFileSync(path, 'utf8'))?.[1]
        .replace(/^ ?\* ?/gm, '')
        .trim() ?? '',
  };
});
for (const { name, symbols } of modules.toReversed()) for (const symbol of symbols) ids.set(symbol.name, idOf(name, symbol.name));

const nav = [];
const main = [];
for (const { name, symbols, doc } of modules) {
  const all = symbols.map((symbol) => ({ ...described(symbol), id: idOf(name, symbol.name) }));
  nav.push(`<h2><a href="#${idOf(name, '')}">${name}</a></h2>`);
  main.push(`<section id="${idOf(name, '')}"><h2>${name}</h2>${prose(doc)}</section>`);
  for (const [kind, title] of Object.entries(kinds)) {
    const of = all.filter((one) => one.kind === kind);
    if (of.length === 0) continue;
    nav.push(`<h3>${title}</h3><ul>${of.map((one) => `<li><a href="#${one.id}">${one.name}</a></li>`).join('')}</ul>`);
    main.push(...of.map((one) => `<section class="export" id="${one.id}"><h3>${one.name}</h3>${one.html}</section>`));
  }
}
const codes = Object.entries(errorCodes).map(([code, meaning]) => [`<code id="${code}">${code}</code>`, inline(meaning)]);
nav.push('<h2><a href="#error-codes">Error codes</a></h2>');
main.push(
  `<section id="error-codes"><h2>Error codes</h2>${prose('`WarpjoinError` has one of these as its `code`. They are stable; messages are not.')}${table(['code', 'meaning'], codes, ' class="codes"')}</section>`,
);

mkdirSync(out, { recursive: true });
writeFileSync(
  join(out, 'index.html'),
  `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${packageName} ${version}: API reference</title>
<style>${readFileSync(fileURLToPath(new URL('api.css', import.meta.url)), 'utf8')}</style>
</head>
<body>
<nav><h1>${packageName} ${version}</h1>
${nav.join('\n')}
</nav>
<main>
${main.join('\n')}
</main>
</body>
</html>
`,
);
