/** Bytes that are read once, in order: those of a file, of standard input, or what a decompressor makes of them. */
export interface ByteSource {
  /** What messages call it: the path, or "standard input". */
  readonly name: string;
  /** The fraction of it that was read so far, from 0 to 1; undefined where its size is unknown, as a pipe's is. */
  progress(): number | undefined;
  bytes(): AsyncIterable<Uint8Array>;
}
