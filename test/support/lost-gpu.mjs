// Loses a GPU: for test/gpu/device-failure.test.ts, in a process of its own, as what a GPU is lost by ends its context in the
// whole process. Prints what each call came to, as JSON.
import { makeVector, Table } from 'apache-arrow';
import { Engine } from '../../dist/engine.js';
import { createEngine, joinCount } from '../../dist/index.js';
import { native } from '../../dist/native.js';
import { engineSchema } from '../../dist/options.js';
import { parse } from '../../dist/schema.js';

const rows = 3_000_000;
const numbers = (factor) => new Table({ id: makeVector(Int32Array.from({ length: rows }, (_, i) => (i * factor) % rows)) });
const [left, right] = [numbers(7919), numbers(104729)];
const outcome = (promise) =>
  promise.then(
    (value) => ({ value }),
    ({ name, code, message }) => ({ name, code, message }),
  );

const addon = native();
let inner;
const spy = {
  backend: addon.backend,
  version: addon.version,
  gpus: addon.gpus,
  gpuSupport: addon.gpuSupport,
  Engine: function Spied(...config) {
    inner ??= new addon.Engine(...config);
    return inner;
  },
};
const engine = new Engine(parse(engineSchema, 'createEngine', { device: 'gpu', memoryLimit: '8GiB' }), spy);
const countOn = (on) => outcome(on.joinCount(left, right, { on: 'id', algorithm: 'radix-hash' }));
const loaded = await engine.load(left);
const resident = await engine.sort(loaded, { by: 'id', resident: true });

const found = { device: engine.devices()[0].name };
found.before = await countOn(engine);
inner.loseDevice(0);
found.first = await countOn(engine);
found.later = await countOn(engine);
found.sort = await outcome(engine.sort(left, { by: 'id' }));
found.loaded = await outcome(engine.joinCount(loaded, loaded, { on: 'id' }));
found.home = await outcome(resident.toArrow());
found.another = await outcome(createEngine({ devices: [0], memoryLimit: '1GiB' }));
found.disposed = await outcome(engine.dispose());
found.module = await outcome(joinCount(left, right, { on: 'id' }));
for (const device of ['auto', 'cpu']) {
  const next = await createEngine({ device, memoryLimit: '8GiB' });
  found[device] = await countOn(next);
  await next.dispose();
}
console.log(JSON.stringify(found));
