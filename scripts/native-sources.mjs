// Prints the native sources of the named groups, one a line: binding.gyp's view of native/sources.json.
import { readFileSync } from 'node:fs';

const groups = JSON.parse(readFileSync(new URL('../native/sources.json', import.meta.url), 'utf8'));
for (const name of process.argv.slice(2)) {
  for (const path of groups[name]) console.log(`native/${path}`);
}
