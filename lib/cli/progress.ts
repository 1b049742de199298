/** A progress line on a terminal; nothing anywhere else. */

export interface ProgressLine {
  /** Shows a step, with the share of it that is done where that is known. */
  show(step: string, fraction?: number): void;
  /** Removes the line. */
  clear(): void;
}

const barWidth = 24;
const millisecondsPerDraw = 50;

/** `12 s left, ` once enough is done to tell. */
function timeLeft(milliseconds: number, fraction = 0): string {
  if (milliseconds < 2000 || fraction < 0.05) return '';
  const seconds = Math.ceil((milliseconds * (1 - fraction)) / fraction / 1000);
  return seconds < 120 ? `${seconds} s left, ` : `${Math.ceil(seconds / 60)} min left, `;
}

export function progressLine(stream: NodeJS.WriteStream, quiet: boolean): ProgressLine {
  if (quiet || !stream.isTTY) return { show() {}, clear() {} };
  let drawn = false;
  let last = { step: '', time: 0 };
  let began = 0;
  return {
    show(step, fraction) {
      const time = performance.now();
      if (step === last.step && time - last.time < millisecondsPerDraw) return;
      if (step !== last.step) began = time;
      last = { step, time };
      const left = timeLeft(time - began, fraction);
      const done = Math.round((fraction ?? 0) * barWidth);
      const bar =
        fraction === undefined
          ? ''
          : `${'█'.repeat(done)}${'░'.repeat(barWidth - done)} ${`${Math.floor(fraction * 100)}`.padStart(3)} %  `;
      stream.write(`\r\x1b[2K${`${bar}${left}${step}`.slice(0, (stream.columns || 80) - 1)}`);
      drawn = true;
    },
    clear() {
      if (drawn) stream.write('\r\x1b[2K');
      drawn = false;
    },
  };
}
