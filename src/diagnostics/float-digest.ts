/**
 * A hash of the bits of float arrays: two 32-bit lanes of multiplications and rotations. It detects any difference, is
 * the same on every engine, and is synchronous, which the engine's own hashes are not.
 */
export class FloatDigest {
  #a = 0x9e3779b9;
  #b = 0x85ebca6b;

  add(data: Float32Array): void {
    const words = new Uint32Array(data.buffer, data.byteOffset, data.length);
    let a = this.#a;
    let b = this.#b;
    for (const word of words) {
      a = Math.imul(a ^ word, 0xcc9e2d51);
      a = (a << 15) | (a >>> 17);
      b = Math.imul(b + a, 0x1b873593) ^ word;
      b = (b << 13) | (b >>> 19);
    }
    this.#a = Math.imul(a ^ words.length, 0xc2b2ae35);
    this.#b = Math.imul(b ^ (a >>> 16), 0x27d4eb2f);
  }

  /** 16 hexadecimal digits. */
  toString(): string {
    return [this.#a, this.#b].map((lane) => (lane >>> 0).toString(16).padStart(8, "0")).join("");
  }
}
