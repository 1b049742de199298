// Results over HTTP: as JSON for browsers, as an Arrow stream for programs.
import { once } from 'node:events';
import { createServer } from 'node:http';
import { tableFromIPC } from 'apache-arrow';
import { fromRows, sort, toRows } from 'warpjoin';

const ARROW = 'application/vnd.apache.arrow.stream';
const players = fromRows([
  { name: 'Ada', points: 12n },
  { name: 'Grace', points: 9007199254740993n }, // more than a JavaScript number holds exactly
  { name: 'Edsger', points: null },
]);

const server = createServer(async (request, response) => {
  const ranked = await sort(players, { by: { column: 'points', descending: true }, limit: 2 });
  if (request.headers.accept === ARROW) {
    response.setHeader('content-type', ARROW);
    response.end(ranked.toIPC());
  } else {
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify(toRows(ranked))); // 64-bit integers: numbers where these are exact, else text
  }
});
await once(server.listen(0), 'listening');
const url = `http://localhost:${server.address().port}/`;

console.log(await (await fetch(url)).text());

const table = await tableFromIPC(fetch(url, { headers: { accept: ARROW } }));
console.log(`${table.numRows} rows of ${table.schema.names.join(', ')}: ${table.getChild('points').get(0)}`);

server.close();
