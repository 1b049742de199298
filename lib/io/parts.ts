/** Results in several files, of so many rows or bytes each. */
import { readdirSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { RecordBatch } from 'apache-arrow';
import { END, type Items, itemsOf, nextOf } from '../items.js';
import { expected } from '../schema.js';
import { asWriteError, fileError } from './file-errors.js';

/** Digits of a file's number: names are in the order of the rows. */
const DIGITS = 6;

/** Throws ERR_FILE where the folder of an output has files or folders of another result: rows of both would be mixed. */
export function checkNone(output: string, folder: string, isOne: (name: string) => boolean): void {
  let names: string[];
  try {
    names = readdirSync(folder);
  } catch (error) {
    throw asWriteError(output, error);
  }
  const found = names.find(isOne);
  if (found) throw fileError(output, `${found} is there already: remove it, or rows of two results would be mixed`);
}

/** The files that a name with a star stands for. */
export class PartFiles {
  readonly #folder: string;
  readonly #before: string;
  readonly #behind: string;
  readonly #written: string[] = [];

  /** Throws ERR_OPTION for another name. */
  constructor(private readonly output: string) {
    this.#folder = dirname(output);
    const [before, behind, ...more] = basename(output).split('*');
    if (behind === undefined || more.length > 0 || this.#folder.includes('*')) {
      throw expected(
        'a name with one "*" in it, which the number of each file is put for,',
        'the output with fileRows, fileSize or partitionBy',
        output,
      );
    }
    [this.#before, this.#behind] = [before!, behind];
  }

  /** Throws ERR_FILE where there are such files already. */
  check(): void {
    const isOne = (name: string) =>
      name.startsWith(this.#before) &&
      name.endsWith(this.#behind) &&
      /^\d+$/.test(name.slice(this.#before.length, name.length - this.#behind.length));
    checkNone(this.output, this.#folder, isOne);
  }

  /** The next one's path. */
  next(): string {
    const number = String(this.#written.length).padStart(DIGITS, '0');
    const path = join(this.#folder, `${this.#before}${number}${this.#behind}`);
    this.#written.push(path);
    return path;
  }

  /** Removes those that were written. */
  async remove(): Promise<void> {
    for (const path of this.#written) await rm(path, { force: true }).catch(() => {});
  }
}

/** A file with so many bytes takes batches of this share of them at most: then it ends about there. */
const PIECE_SHARE = 1 / 16;

/** Record batches that are taken some rows at a time. */
export class Rows {
  /** What was read of a batch and not taken. */
  #rest: RecordBatch | undefined;
  /** Most rows of it that are taken at once. */
  #pieceRows = 0;
  #isFirst = true;
  readonly #pieceBytes: number;

  /** `fileBytes`: of a file, at most about. */
  constructor(
    private readonly batches: Items<RecordBatch>,
    fileBytes: number,
  ) {
    this.#pieceBytes = PIECE_SHARE * fileBytes;
  }

  /** Whether there are rows left, or nothing was taken yet. */
  async hasMore(): Promise<boolean> {
    if (this.#isFirst) return true;
    await this.#fill();
    return this.#rest !== undefined;
  }

  /** The next rows, at most so many, and no more once `isFull` says so: one at least. */
  take(rows: number, isFull: () => boolean): Items<RecordBatch> {
    this.#isFirst = false;
    let taken = 0;
    return itemsOf(async () => {
      if (taken === rows || (taken > 0 && isFull())) return END;
      await this.#fill();
      const batch = this.#rest;
      if (!batch) return END;
      const piece = Math.min(rows - taken, batch.numRows, this.#pieceRows);
      this.#rest = piece < batch.numRows ? batch.slice(piece) : undefined;
      taken += piece;
      return piece < batch.numRows ? batch.slice(0, piece) : batch;
    });
  }

  async #fill(): Promise<void> {
    while (!this.#rest) {
      const batch = await nextOf(this.batches);
      if (batch === END) return;
      if (batch.numRows === 0) continue;
      this.#rest = batch;
      this.#pieceRows = Math.max(1, Math.floor((batch.numRows * this.#pieceBytes) / Math.max(1, batch.data.byteLength)));
    }
  }
}
