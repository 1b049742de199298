/** A progress line on a terminal; nothing anywhere else. */

export interface ProgressLine {
  /** Shows a step, with the share of it that is done where that is known. */
  show(step: string, fraction?: number): void;
  /** Removes the line. */
  clear(): void;
}

const barWidth = 24;
const millisecondsPerDraw = 50;

export function progressLine(stream: NodeJS.WriteStream, quiet: boolean): ProgressLine {
  if (quiet || !stream.isTTY) return { show() {}, clear() {} };
  let drawn = false;
  let last = { step: '', time: 0 };
  return {
    show(step, fraction) {
      const time = performance.now();
      if (step === last.step && time - last.time < millisecondsPerDraw) return;
      last = { step, time };
      const done = Math.round((fraction ?? 0) * barWidth);
      const bar =
        fraction === undefined
          ? ''
          : `${'█'.repeat(done)}${'░'.repeat(barWidth - done)} ${`${Math.floor(fraction * 100)}`.padStart(3)} %  `;
      stream.write(`\r\x1b[2K${`${bar}${step}`.slice(0, (stream.columns || 80) - 1)}`);
      drawn = true;
    },
    clear() {
      if (drawn) stream.write('\r\x1b[2K');
      drawn = false;
    },
  };
}
