/** The command that checks the installation and this machine. */
import { type Diagnosis, describeDiagnosis, diagnose } from '../diagnose.js';

/** Prints what was found, and gives the exit code: 1 where something keeps warpjoin from working. */
export async function doctor(look: () => Promise<Diagnosis> = diagnose): Promise<number> {
  const diagnosis = await look();
  process.stdout.write(`${describeDiagnosis(diagnosis)}\n`);
  return diagnosis.ok ? 0 : 1;
}
