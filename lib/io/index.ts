/**
 * Tables from and to files:
 *
 *     import { readTable, scanFiles, writeBatches, writeTable } from 'warpjoin/io';
 */
export type { Format } from './formats.js';
export type { ReadOptions, ReadProgress, ScanOptions, TextType, WriteOptions } from './options.js';
export { readTable, scanFiles } from './read.js';
export { type BatchesToWrite, writeBatches, writeTable } from './write.js';
