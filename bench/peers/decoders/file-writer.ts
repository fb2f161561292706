import { closeSync, openSync, writeSync } from "node:fs";

/** A file that is written from start to end, in pieces that fit into memory. */
export class FileWriter {
  readonly #file: number;
  length = 0;

  constructor(path: string) {
    this.#file = openSync(path, "w");
  }

  write(data: ArrayBufferView): void {
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    for (let at = 0; at < bytes.length; ) at += writeSync(this.#file, bytes, at);
    this.length += bytes.length;
  }

  /** Zeros up to a multiple of `alignment`. */
  pad(alignment: number): void {
    this.write(new Uint8Array(-this.length & (alignment - 1)));
  }

  close(): void {
    closeSync(this.#file);
  }
}
