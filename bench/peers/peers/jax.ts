import type { Array as JaxArray } from "@jax-js/jax";
import { versionOf } from "../packages.ts";
import type { Peer, Prepared, Way } from "../peer.ts";
import { APART, graphWays, NO_INTEGERS, type Ops, type Program } from "../program.ts";
import { transposed } from "../transpose.ts";
import type { Work } from "../works.ts";

let jax: typeof import("@jax-js/jax");

function place(data: Float32Array, shape: readonly number[]): JaxArray {
  return jax.numpy.array(data as Float32Array<ArrayBuffer>).reshape([...shape]);
}

/** An operation releases its inputs, so every use of an array passes a new reference, `.ref`. */
function jaxOps(constants: Map<Float32Array, JaxArray>): Ops<JaxArray> {
  const { numpy: np, nn } = jax;
  const constant = (data: Float32Array, shape: readonly number[]) => {
    const known = constants.get(data) ?? place(data, shape);
    constants.set(data, known);
    return known;
  };
  return {
    constant,
    dense(x, w, outputs, width, bias) {
      // Many rows are several times faster with transposed weights, one row with a transposed view of them.
      const one = x.shape[0] === 1;
      const known = constants.get(w);
      const weights =
        known ?? (one ? place(w, [outputs, width]) : place(transposed(w, outputs, width), [width, outputs]));
      constants.set(w, weights);
      const y = np.matmul(x.ref, one ? np.matrixTranspose(weights.ref) : weights.ref);
      return bias ? np.add(y, constant(bias, [1, outputs]).ref) : y;
    },
    reshape: (x, shape) => x.ref.reshape([...shape]),
    transpose: (x, order) => np.transpose(x.ref, [...order]),
    matmul: (a, b, transposeB) => np.matmul(a.ref, transposeB ? np.matrixTranspose(b.ref) : b.ref),
    add: (a, b) => np.add(a.ref, b.ref),
    mul: (a, b) => np.multiply(a.ref, b.ref),
    softmax: (x) => nn.softmax(x.ref, -1),
    slice: (x, shape, axis, begin, end) =>
      x.ref.slice(...(shape.map((_, i) => (i === axis ? [begin, end] : [])) as never[])),
    concat: (parts, axis) =>
      np.concatenate(
        parts.map((part) => part.ref),
        axis,
      ),
  };
}

/** Whether the stages of a program are compiled separately, or as one function. */
type Compiling = "stages" | "whole";

/** A compiled function holds its constants until it is disposed of. */
type Compiled = ((...inputs: JaxArray[]) => JaxArray[]) & { dispose(): void };

function prepare(program: Program, compiling: Compiling): Prepared {
  const constants = new Map<Float32Array, JaxArray>();
  const ops = jaxOps(constants);
  const compile = (part: (...inputs: JaxArray[]) => JaxArray[]) => jax.jit(part) as unknown as Compiled;
  const stages: Compiled[] = [];
  /** The arrays of a run, which are released after it. */
  const made: JaxArray[] = [];
  let called = 0;
  const stage: NonNullable<Ops<JaxArray>["stage"]> = (part, inputs) => {
    stages[called] ??= compile(part);
    const outputs = stages[called++]!(...inputs.map((input) => input.ref));
    made.push(...outputs);
    return outputs;
  };
  const whole = compile((...inputs) => program.build(ops, inputs));
  const [first, ...kept] = program.inputs;
  const cache = kept.map(({ data, shape }) => place(data, shape));
  let y = new Float32Array();
  return {
    async run() {
      const inputs = [place(first!.data, first!.shape), ...cache];
      called = 0;
      if (compiling === "stages") program.build({ ...ops, stage }, inputs);
      else made.push(...whole(...inputs.map((input) => input.ref)));
      const answer = compiling === "stages" ? made.at(-1)! : made[0]!;
      y = (await answer.ref.data()) as Float32Array<ArrayBuffer>;
      for (const array of made.splice(0)) (await array.blockUntilReady()).dispose();
      inputs[0]!.dispose();
    },
    output: () => y,
    release() {
      for (const one of [whole, ...stages, ...constants.values(), ...cache]) one.dispose();
    },
  };
}

/** With more scores than these, all ways together would exceed its memory of 4 GiB, which becomes fragmented. */
const MOST_SCORES = 2 ** 26;

function isLarge(work: Work): boolean {
  return work.kind === "block" && work.layer.numHeads * work.qLen ** 2 > MOST_SCORES;
}

export const peer: Peer = {
  name: "jax-js",
  version: versionOf("@jax-js/jax"),
  column: 4,
  async load() {
    jax = await import("@jax-js/jax");
    await jax.init("wasm");
    jax.defaultDevice("wasm");
  },
  ways(work) {
    if (work.kind === "integer product") return NO_INTEGERS;
    const fits = (way: Way) => !isLarge(work) || way.name.includes(APART);
    const whole = graphWays(work, (program) => prepare(program, "whole"));
    if (work.kind !== "block" && work.kind !== "step") return whole;
    const stages = graphWays(work, (program) => prepare(program, "stages"));
    return [
      ...stages.filter(({ aside }) => !aside).map((way) => ({ ...way, name: `${way.name}, in stages` })),
      ...whole,
    ].filter(fits);
  },
  shipped: { source: 'export { defaultDevice, init, jit, nn, numpy } from "@jax-js/jax";', assets: [] },
};
