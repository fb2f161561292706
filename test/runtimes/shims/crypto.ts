// node:crypto of the conformance runner: SHA-256 without a promise. FIPS 180-4.

/** The first 32 bits of the fractional part of a prime's root, which float64 holds with room to spare. */
const fraction = (root: number): number => (root % 1) * 2 ** 32;
const primes = Array.from({ length: 312 }, (_, n) => n).filter((n) => n > 1 && divisors(n) === 0);

function divisors(n: number): number {
  let count = 0;
  for (let d = 2; d * d <= n; d++) if (n % d === 0) count++;
  return count;
}

const START = primes.slice(0, 8).map((prime) => Math.floor(fraction(Math.sqrt(prime))));
const ROUNDS = primes.map((prime) => Math.floor(fraction(Math.cbrt(prime))));
const turn = (word: number, bits: number): number => (word >>> bits) | (word << (32 - bits));

function sha256(bytes: Uint8Array): string {
  const padded = new Uint8Array(Math.ceil((bytes.length + 9) / 64) * 64);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setBigUint64(padded.length - 8, BigInt(bytes.length) * 8n);
  const state = Uint32Array.from(START);
  const w = new Uint32Array(64);
  for (let at = 0; at < padded.length; at += 64) {
    for (let i = 0; i < 64; i++) w[i] = i < 16 ? view.getUint32(at + 4 * i) : extended(w, i);
    let [a, b, c, d, e, f, g, h] = state as unknown as [number, number, number, number, number, number, number, number];
    for (let i = 0; i < 64; i++) {
      const t1 = h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + ROUNDS[i]! + w[i]!;
      const t2 = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      [a, b, c, d, e, f, g, h] = [(t1 + t2) | 0, a, b, c, (d + t1) | 0, e, f, g];
    }
    for (const [i, word] of [a, b, c, d, e, f, g, h].entries()) state[i] = state[i]! + word;
  }
  return Array.from(state, (word) => word.toString(16).padStart(8, "0")).join("");
}

function extended(w: Uint32Array, i: number): number {
  const [x, y] = [w[i - 15]!, w[i - 2]!];
  return w[i - 16]! + (turn(x, 7) ^ turn(x, 18) ^ (x >>> 3)) + w[i - 7]! + (turn(y, 17) ^ turn(y, 19) ^ (y >>> 10));
}

/** As the runner calls it: createHash("sha256").update(bytes).digest("hex"). */
export function createHash(_algorithm: "sha256") {
  return { update: (bytes: Uint8Array) => ({ digest: (_encoding: "hex") => sha256(bytes) }) };
}
