import { expectRecord } from "../util/arguments.ts";
import { describe, tagOf } from "../util/errors.ts";

/** The types of a field, the shape of the elements of an array, or the fields of an object: those with ? may be absent. */
type Shape = string | readonly [Shape] | { readonly [field: string]: Shape };

const RATE = { gflops: "number", bestGflops: "number" };

/** What the text of a diagnosis is made of. JSON has null for a number that is not finite; reports of 0.4.0 have no variation. */
const DIAGNOSIS: Shape = {
  ok: "boolean",
  version: "string",
  engine: "string",
  "system?": "string",
  "processor?": "string",
  "processors?": "number",
  "memory?": "number",
  "problem?": { message: "string" },
  features: {
    codegen: "boolean",
    simd: "boolean",
    relaxedSimd: "boolean",
    threads: "boolean",
    sharedMemory: "boolean",
    isolated: "boolean or null",
  },
  "kernels?": {
    build: "string",
    reason: "string",
    threads: { requested: "number or string", used: "number", reason: "string" },
    startMs: "number",
    memoryBytes: "number",
    "dotProducts?": { exact: "string", fast: "string", ms: "number" },
  },
  "selfTest?": { ok: "boolean", digest: "string", expected: "string", outputs: "number", ms: "number" },
  "peak?": { ...RATE, arithmetic: "string", "variation?": "number" },
  "works?": [
    {
      work: "string",
      shape: "string",
      "gflops?": "number",
      "bestGflops?": "number",
      "ofPeak?": "number",
      relativeError: "number or null",
    },
  ],
};

/** Throws `TypeError`, which names the wrong field, unless `value` is a diagnosis. */
export function expectDiagnosis(where: string, value: unknown): void {
  if (tagOf(value) === "Promise")
    throw new TypeError(`${where}: diagnosis expected what diagnose resolves with, got ${describe(value)}`);
  expectShape(where, "diagnosis", value, DIAGNOSIS);
}

function expectShape(where: string, name: string, value: unknown, shape: Shape): void {
  if (typeof shape === "string") {
    const type = value === null ? "null" : typeof value;
    if (!shape.split(" or ").includes(type))
      throw new TypeError(`${where}: ${name} expected ${shape}, got ${describe(value)}`);
  } else if (isList(shape)) {
    if (!Array.isArray(value)) throw new TypeError(`${where}: ${name} expected an array, got ${describe(value)}`);
    for (const [i, element] of value.entries()) expectShape(where, `${name}[${i}]`, element, shape[0]);
  } else {
    expectRecord(where, name, value);
    for (const [key, inner] of Object.entries(shape)) {
      const field = key.replace("?", "");
      const content = (value as Readonly<Record<string, unknown>>)[field];
      if (content !== undefined || field === key) expectShape(where, `${name}.${field}`, content, inner);
    }
  }
}

/** `Array.isArray` does not narrow readonly arrays. */
function isList(shape: Exclude<Shape, string>): shape is readonly [Shape] {
  return Array.isArray(shape);
}
