/** The command that checks the installation and this machine. */

/** What this command needs of lib/diagnose.ts. */
interface Diagnose<D extends { ok: boolean; findings: readonly { status: string }[] }> {
  diagnose(): Promise<D>;
  describeDiagnosis(diagnosis: D): string;
}

const load = async () => (await import(new URL('../diagnose.js', import.meta.url).href)) as Diagnose<never>;

/** Prints what was found, and gives the exit code: 1 where something keeps warpjoin from working. */
export async function doctor<D extends { ok: boolean; findings: readonly { status: string }[] }>(
  library: () => Promise<Diagnose<D>> = load as never,
): Promise<number> {
  const { diagnose, describeDiagnosis } = await library();
  const diagnosis = await diagnose();
  process.stdout.write(`${describeDiagnosis(diagnosis).trimEnd()}\n`);
  return diagnosis.findings.some(({ status }) => status === 'error') ? 1 : 0;
}
