// A table that many joins need stays on the GPU. Where there is none, the processor does the same, and the example says so.
import { createEngine, fromColumns } from 'warpjoin';

const engine = await createEngine({ device: 'gpu', fallback: 'silent' });

const customers = 100_000;
const dimension = await engine.load(
  fromColumns({
    customer: Int32Array.from({ length: customers }, (_, row) => row),
    region: Int32Array.from({ length: customers }, (_, row) => row % 12),
  }),
);

for (let day = 1; day <= 3; day++) {
  const orders = 200_000;
  const facts = await engine.load(
    fromColumns({
      customer: Int32Array.from({ length: orders }, (_, row) => (row * 7919 + day) % (2 * customers)),
      total: Float64Array.from({ length: orders }, (_, row) => row % 100),
    }),
  );
  const joined = await engine.join(facts, dimension, { on: 'customer', select: ['region', 'total'] });
  console.log(`day ${day}: ${joined.numRows} orders, on the ${joined.stats.device}`);
  await facts.dispose();
}
if (engine.devices().every(({ kind }) => kind === 'host')) console.log('there is no GPU: the processor did it');

await dimension.dispose();
await engine.dispose();
