// Bytes: joined, as text, and their SHA-256.

/** A sequence of bytes. */
type Bytes = Uint8Array | readonly number[];

/** The concatenation of the parts. */
export function joinBytes(parts: readonly Bytes[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** An unsigned number of up to 32 bits as LEB128. */
export function leb(value: number): number[] {
  return value < 128 ? [value] : [(value & 127) | 128, ...leb(value >>> 7)];
}

interface FromBase64 {
  fromBase64?(text: string): Uint8Array<ArrayBuffer>;
}

/** Bytes of base64. */
export function decodeBase64(text: string): Uint8Array<ArrayBuffer> {
  const { fromBase64 } = Uint8Array as FromBase64;
  return fromBase64?.(text) ?? Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

/** Bytes as hexadecimal digits. */
export const toHex = (bytes: Uint8Array): string =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

// SHA-256 (FIPS 180-4).

/** The first 32 bits of the fractional parts of the cube roots of the first 64 primes, and of the square roots of the first 8. */
const ROUNDS = /* @__PURE__ */ Int32Array.of(
  ...[0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5],
  ...[0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174],
  ...[0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da],
  ...[0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967],
  ...[0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85],
  ...[0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070],
  ...[0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3],
  ...[0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2],
);
const START = [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];

/** What computes SHA-256 of bytes that come in parts. */
interface Sha256 {
  update(bytes: Uint8Array): void;
  /** The digest of all bytes that came; called once. */
  digest(): Uint8Array;
}

/** SHA-256 (FIPS 180-4) in plain JavaScript, for hosts and contexts without it, and where waiting is not possible. */
export function createSha256(): Sha256 {
  const state = Int32Array.from(START);
  const words = new Int32Array(64);
  const block = new Uint8Array(64);
  let length = 0;
  const addBlocks = (bytes: Uint8Array, begin: number): number => {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    let at = begin;
    for (; at + 64 <= bytes.length; at += 64) {
      for (let i = 0; i < 16; i++) words[i] = view.getInt32(at + 4 * i);
      addBlock(state, words);
    }
    return at;
  };
  return {
    update(bytes) {
      const filled = length % 64;
      const missing = filled === 0 ? 0 : Math.min(64 - filled, bytes.length);
      block.set(bytes.subarray(0, missing), filled);
      if (filled + missing === 64) addBlocks(block, 0);
      length += bytes.length;
      const at = addBlocks(bytes, missing);
      if (filled === 0 || filled + missing === 64) block.set(bytes.subarray(at));
    },
    digest() {
      const rest = length % 64;
      const end = new Uint8Array(Math.ceil((rest + 9) / 64) * 64);
      end.set(block.subarray(0, rest));
      end[rest] = 0x80;
      const view = new DataView(end.buffer);
      view.setUint32(end.length - 8, Math.floor(length / 2 ** 29));
      view.setUint32(end.length - 4, length << 3);
      addBlocks(end, 0);
      const digest = new DataView(new ArrayBuffer(32));
      for (const [i, word] of state.entries()) digest.setUint32(4 * i, word);
      return new Uint8Array(digest.buffer);
    },
  };
}

/** SHA-256 of bytes that are there. */
export function sha256(data: Uint8Array): Uint8Array<ArrayBuffer> {
  const hash = createSha256();
  hash.update(data);
  return hash.digest() as Uint8Array<ArrayBuffer>;
}

const rotate = (word: number, by: number) => (word >>> by) | (word << (32 - by));

/** Adds a block of 64 bytes, the first 16 of `words`, to the state. */
function addBlock(state: Int32Array, words: Int32Array): void {
  for (let i = 16; i < 64; i++) {
    const near = words[i - 2] as number;
    const far = words[i - 15] as number;
    const first = rotate(far, 7) ^ rotate(far, 18) ^ (far >>> 3);
    const second = rotate(near, 17) ^ rotate(near, 19) ^ (near >>> 10);
    words[i] = (words[i - 16] as number) + first + (words[i - 7] as number) + second;
  }
  const at = (i: number) => state[i] as number;
  // Without lists, whose iterators take as long as all rounds of a block.
  let a = at(0);
  let b = at(1);
  let c = at(2);
  let d = at(3);
  let e = at(4);
  let f = at(5);
  let g = at(6);
  let h = at(7);
  for (let i = 0; i < 64; i++) {
    const choice = (e & f) ^ (~e & g);
    const majority = (a & b) ^ (a & c) ^ (b & c);
    const mixed = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
    const first = (h + mixed + choice + (ROUNDS[i] as number) + (words[i] as number)) | 0;
    const second = ((rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + majority) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + first) | 0;
    d = c;
    c = b;
    b = a;
    a = (first + second) | 0;
  }
  state[0] = at(0) + a;
  state[1] = at(1) + b;
  state[2] = at(2) + c;
  state[3] = at(3) + d;
  state[4] = at(4) + e;
  state[5] = at(5) + f;
  state[6] = at(6) + g;
  state[7] = at(7) + h;
}
