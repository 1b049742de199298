/** How wide text is on a terminal, and text that moves no cursor. */

/** Characters of two columns (East Asian Wide and Fullwidth, UAX 11), as pairs of first and last. */
const wideRanges: readonly (readonly [number, number])[] = [
  [0x1100, 0x115f],
  [0x2329, 0x232a],
  [0x2e80, 0x303e],
  [0x3041, 0x33ff],
  [0x3400, 0x4dbf],
  [0x4e00, 0xa4cf],
  [0xa960, 0xa97f],
  [0xac00, 0xd7a3],
  [0xf900, 0xfaff],
  [0xfe10, 0xfe19],
  [0xfe30, 0xfe6f],
  [0xff00, 0xff60],
  [0xffe0, 0xffe6],
  [0x16fe0, 0x18dff],
  [0x1aff0, 0x1b2ff],
  [0x1f200, 0x1f2ff],
  [0x20000, 0x3fffd],
];

const segmenter = new Intl.Segmenter(undefined, { granularity: 'grapheme' });
const isAscii = (text: string) => /^[\x20-\x7e]*$/.test(text);

/** What readers see as characters: letters with their marks, emoji of several parts. */
export const charactersOf = (text: string): string[] =>
  isAscii(text) ? [...text] : Array.from(segmenter.segment(text), ({ segment }) => segment);

function characterWidth(character: string): number {
  const code = character.codePointAt(0)!;
  if (code < 0x300) return 1;
  if (/^\p{Emoji_Presentation}|\ufe0f/u.test(character)) return 2;
  if (/^[\p{Mn}\p{Me}\p{Cf}]+$/u.test(character)) return 0;
  return wideRanges.some(([first, last]) => code >= first && code <= last) ? 2 : 1;
}

/** Columns that a text takes on a terminal. */
export const widthOf = (text: string): number =>
  isAscii(text) ? text.length : charactersOf(text).reduce((sum, character) => sum + characterWidth(character), 0);

/** At most so many columns of a text, with an ellipsis where there is more. */
export function truncated(text: string, most: number): string {
  if (widthOf(text) <= most) return text;
  let shown = '';
  let width = 0;
  for (const character of charactersOf(text)) {
    width += characterWidth(character);
    if (width > most - 1) break;
    shown += character;
  }
  return `${shown}…`;
}

const named: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' };

/** Text in one line: control characters, and those that turn its direction, as escapes. */
export const escaped = (text: string): string =>
  text.replace(/[\p{Cc}\p{Zl}\p{Zp}\u200e\u200f\u202a-\u202e\u2066-\u2069]|\p{Surrogate}/gu, (character) => {
    const code = character.codePointAt(0)!.toString(16);
    return named[character] ?? (code.length > 2 ? `\\u${code.padStart(4, '0')}` : `\\x${code.padStart(2, '0')}`);
  });

/** Text with spaces up to a width: after it, or before it. */
export function padded(text: string, width: number, right: boolean): string {
  const space = ' '.repeat(Math.max(0, width - widthOf(text)));
  return right ? space + text : text + space;
}
