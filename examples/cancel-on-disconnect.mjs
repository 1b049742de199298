// An HTTP server that cancels a join when its client has gone. A client that leaves early is played below.
import { once } from 'node:events';
import { createServer, get } from 'node:http';
import { createEngine, fromColumns, toRows, WarpjoinError } from 'warpjoin';

const engine = await createEngine({ device: 'cpu', threads: 2, memoryLimit: '2GiB' });
const rows = 3_000_000;
const events = fromColumns({
  user: Int32Array.from({ length: rows }, (_, row) => (row * 7919) % 1000),
  value: Float64Array.from({ length: rows }, (_, row) => row),
});

/** A signal that aborts when the connection closes before the response has ended. */
function whileConnected(response) {
  const controller = new AbortController();
  response.on('close', () => {
    if (!response.writableEnded) controller.abort(new Error('the client has gone'));
  });
  return controller.signal;
}

const user = fromColumns({ user: Int32Array.of(7) });

const server = createServer(async (request, response) => {
  // The slow join finds each event by two columns among all of them.
  const [right, on] = request.url === '/slow' ? [events, ['user', 'value']] : [user, ['user']];
  try {
    const joined = await engine.join(events, right, {
      on,
      maintainOrder: 'left',
      limit: 2,
      maxOutputRows: 1e7, // whatever a client asks for
      signal: whileConnected(response),
    });
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify(toRows(joined)));
  } catch (error) {
    server.emit('failed', error);
    response.statusCode = error instanceof WarpjoinError && error.code === 'ERR_MEMORY_LIMIT' ? 413 : 500;
    response.end(error.message);
  }
});
await once(server.listen(0), 'listening');
const { port } = server.address();

// This client stays, and gets its rows.
const answer = await fetch(`http://localhost:${port}/`);
console.log(answer.status, await answer.text());

// This one leaves while its join runs.
const impatient = get(`http://localhost:${port}/slow`);
impatient.on('error', () => {}); // its own hang-up
const failed = once(server, 'failed');
await once(server, 'request');
impatient.destroy();
const [error] = await failed;
console.log('cancelled:', error.message);

server.close();
await engine.dispose();
