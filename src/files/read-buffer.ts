import { createArray } from "./byte-source.ts";
import type { TensorFile } from "./tensor-file.ts";

/** What reads the tensors of all files. The bytes that a read gives are overwritten by the next one. */
export type TensorReader = Pick<TensorFile<unknown>, "readAll" | "readRows">;

/**
 * Memory that is read into again and again. A fresh array for each read costs more than the read: its pages are mapped first,
 * and it is held until the engine collects it.
 */
export class ReadBuffer {
  #bytes: Uint8Array = new Uint8Array();
  #taken = 0;

  /** From now on, arrays that were taken are overwritten. */
  reuse(): void {
    this.#taken = 0;
  }

  /** An array of `length` bytes, at a multiple of 8 of its buffer. Throws OUT_OF_MEMORY if the engine cannot allocate it. */
  take(where: string, length: number): Uint8Array {
    if (this.#taken + length > this.#bytes.length) {
      this.#bytes = createArray(where, length);
      this.#taken = 0;
    }
    const bytes = this.#bytes.subarray(this.#taken, this.#taken + length);
    this.#taken = Math.ceil((this.#taken + length) / 8) * 8;
    return bytes;
  }
}

/** Reads tensors into `buffer`, each time from its start. */
export function reading({ readAll, readRows }: TensorReader, buffer: ReadBuffer): TensorReader {
  return {
    readAll(...names) {
      buffer.reuse();
      return readAll(...names);
    },
    readRows(...rows) {
      buffer.reuse();
      return readRows(...rows);
    },
  };
}
