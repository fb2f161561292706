import type { Tensor } from "headwise";

/** A `torch.nn.Linear`: weight [out, in] and, unless it was made without, bias [out]. */
export interface TorchLinear {
  readonly weight: Tensor;
  readonly bias: Float32Array | undefined;
}

/**
 * The random numbers of PyTorch's CPU generator, so that the tutorials' inputs come from their seeds instead of files.
 * Fewer than 16 normals, and uniforms, are PyTorch's to the bit; longer runs of normals differ by up to 1.2e-7, because
 * PyTorch takes logarithm, sine and cosine of a whole vector at a time.
 */
export class TorchRandom {
  readonly #state = new Uint32Array(624);
  #next = 624;
  /** The second normal of a pair, kept for the next short run. */
  #kept: number | undefined;

  /** `torch.manual_seed(seed)`. */
  constructor(seed: number) {
    this.#state[0] = seed;
    for (let i = 1; i < 624; i++) {
      const before = this.#state[i - 1]!;
      this.#state[i] = Math.imul(1812433253, before ^ (before >>> 30)) + i;
    }
  }

  /** `torch.randn(shape)`, times `std`. */
  randn(shape: readonly number[], std = 1): Tensor {
    const size = shape.reduce((product, length) => product * length, 1);
    const data = new Float32Array(size);
    if (size < 16) {
      for (let i = 0; i < size; i++) data[i] = this.#normal() * std;
      return { data, shape };
    }
    for (let i = 0; i < size; i++) data[i] = this.#float();
    for (let i = 0; i + 16 <= size; i += 16) toNormals(data.subarray(i, i + 16), std);
    if (size % 16 !== 0) {
      // What does not fill a block is made by drawing the last 16 anew.
      const last = data.subarray(size - 16);
      for (let i = 0; i < 16; i++) last[i] = this.#float();
      toNormals(last, std);
    }
    return { data, shape };
  }

  /** `torch.nn.Linear(inputs, outputs)` with its default init: weight, then bias, uniform within 1/√inputs. */
  linear(inputs: number, outputs: number, bias = true): TorchLinear {
    const bound = Math.fround(1 / Math.sqrt(inputs));
    const uniform = (length: number) => Float32Array.from({ length }, () => this.#float() * (2 * bound) - bound);
    const weight = { data: uniform(outputs * inputs), shape: [outputs, inputs] };
    return { weight, bias: bias ? uniform(outputs) : undefined };
  }

  /** Uniform in [0, 1) with 24 bits. */
  #float(): number {
    return (this.#word() & 0xffffff) * 2 ** -24;
  }

  /** Uniform in [0, 1) with 53 bits, of two words, the high one first. */
  #double(): number {
    const high = this.#word() & 0x1fffff;
    return (high * 2 ** 32 + this.#word()) * 2 ** -53;
  }

  #normal(): number {
    const kept = this.#kept;
    this.#kept = undefined;
    if (kept !== undefined) return kept;
    const angle = 2 * Math.PI * this.#double();
    const radius = Math.sqrt(-2 * Math.log1p(-this.#double()));
    this.#kept = radius * Math.sin(angle);
    return radius * Math.cos(angle);
  }

  /** The next 32 bits of the Mersenne Twister MT19937 (Matsumoto and Nishimura 1998). */
  #word(): number {
    if (this.#next === 624) this.#twist();
    let y = this.#state[this.#next++]!;
    y ^= y >>> 11;
    y ^= (y << 7) & 0x9d2c5680;
    y ^= (y << 15) & 0xefc60000;
    return (y ^ (y >>> 18)) >>> 0;
  }

  #twist(): void {
    const state = this.#state;
    for (let i = 0; i < 624; i++) {
      const y = (state[i]! & 0x80000000) | (state[(i + 1) % 624]! & 0x7fffffff);
      state[i] = state[(i + 397) % 624]! ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
    }
    this.#next = 0;
  }
}

/** Box and Muller's transform of 16 uniforms in place: the first eight give the radii, the others the angles. */
function toNormals(block: Float32Array, std: number): void {
  for (let j = 0; j < 8; j++) {
    const radius = Math.fround(Math.sqrt(-2 * Math.fround(Math.log(1 - block[j]!))));
    const angle = Math.fround(Math.fround(2 * Math.PI) * block[j + 8]!);
    block[j] = radius * Math.fround(Math.cos(angle)) * std;
    block[j + 8] = radius * Math.fround(Math.sin(angle)) * std;
  }
}
