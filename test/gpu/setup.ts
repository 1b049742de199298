/** Before the suites run on GPUs: there must be some, and as many as WARPJOIN_EXPECT_GPUS, for a skip must not look like a pass. */
import { native } from '../../lib/native.js';

export default function setup(): void {
  const { backend } = native();
  const gpus = native().gpus();
  const expected = Number(process.env.WARPJOIN_EXPECT_GPUS ?? 1);
  console.log(`GPUs (${backend}): ${gpus.map((gpu) => gpu.name).join(', ') || 'none'}`);
  console.log(
    'The suites of sorts, joins, engines and bad input run on them; tests that skip themselves say why in their names.',
  );
  if (gpus.length < expected) throw new Error(`Expected ${expected} GPUs but found ${gpus.length} (${backend} build)`);
}
