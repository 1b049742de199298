/** What a user of the package meets in an editor: the compiler's messages, and what it shows of a name, from the declarations in dist/. */
import { join } from 'node:path';
import ts from 'typescript';

const root = join(import.meta.dirname, '..', '..');

export interface Editor {
  /** The messages of the snippet, "TS2322 ...". */
  messages(snippet: string): string[];
  /** What the editor shows at the first occurrence of `name` in the snippet. */
  hover(snippet: string, name: string): string;
}

/** Snippets of TypeScript that follow the same first lines, each in a block of its own. */
export function editor(firstLines: string, snippets: readonly string[]): Editor {
  const path = join(root, 'test', 'snippets.ts');
  const starts: number[] = [];
  let text = `${firstLines}\n`;
  for (const snippet of snippets) {
    starts.push(text.length + 2);
    text += `{ ${snippet} }\n`;
  }
  const { config } = ts.readConfigFile(join(root, 'tsconfig.json'), ts.sys.readFile);
  const { options } = ts.parseJsonConfigFileContent(config, ts.sys, root);
  const service = ts.createLanguageService({
    getCompilationSettings: () => options,
    getScriptFileNames: () => [path],
    getScriptVersion: () => '1',
    getCurrentDirectory: () => root,
    getDefaultLibFileName: ts.getDefaultLibFilePath,
    getScriptSnapshot: (file) => {
      const found = file === path ? text : ts.sys.readFile(file);
      return found === undefined ? undefined : ts.ScriptSnapshot.fromString(found);
    },
    fileExists: (file) => file === path || ts.sys.fileExists(file),
    readFile: (file) => (file === path ? text : ts.sys.readFile(file)),
    directoryExists: ts.sys.directoryExists,
  });
  const diagnostics = [...service.getSyntacticDiagnostics(path), ...service.getSemanticDiagnostics(path)];
  const stray = diagnostics.find(({ start }) => start! < starts[0]!);
  if (stray) throw new Error(ts.flattenDiagnosticMessageText(stray.messageText, '\n'));
  const startOf = (snippet: string): number => {
    const index = snippets.indexOf(snippet);
    if (index < 0) throw new Error(`no such snippet: ${snippet}`);
    return starts[index]!;
  };
  return {
    messages(snippet) {
      const from = startOf(snippet);
      return diagnostics
        .filter(({ start }) => start! >= from && start! < from + snippet.length)
        .map(({ code, messageText }) => `TS${code} ${ts.flattenDiagnosticMessageText(messageText, '\n')}`);
    },
    hover(snippet, name) {
      const info = service.getQuickInfoAtPosition(path, startOf(snippet) + snippet.search(new RegExp(`\\b${name}\\b(?!')`)));
      const tags = info?.tags?.map((tag) => `@${tag.name} ${ts.displayPartsToString(tag.text)}`) ?? [];
      return [ts.displayPartsToString(info?.documentation), ...tags].join('\n');
    },
  };
}
