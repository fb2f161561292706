// The calls of a token, planned and repeated, on kernels that only write down what they get.

import { expect, test } from "vitest";
import { finish, type Steps } from "../../../src/base/util/steps.ts";
import { AttentionShape, NULL } from "../../../src/wasm/abi.ts";
import { pointer } from "../../../src/wasm/memory.ts";
import { planToken, repeatCalls, type TokenCalls } from "../../../src/wasm/token-calls.ts";
import { kernelsOf } from "../../support/layers.ts";

const kernels = await kernelsOf("relaxed");
const { table, memory } = kernels;
const at = memory.allocate("test", 4096);
const x = pointer.f32(at + 1024);
const shape = pointer.attentionShape(at);
const SHAPE = Object.fromEntries(
  ["qLen", "left", "right", "numHeads", "numKvHeads", "headDim", "valueDim", "qStride", "qHeadStride"].map((name) => [
    name,
    4,
  ]),
) as unknown as AttentionShape;

/** A step of attention and one of a norm: what depends on the position are `of(position)` and a number of the shape. */
function* stepsAt(position: number, of = (position: number) => position): Steps {
  const rest = { outStride: 4, outHeadStride: 4, scale: 0.3, softcap: 0, zeroKey: 0, formats: 0 };
  const none = { slopes: NULL, sinks: NULL, extraKey: NULL, extraValue: NULL, keep: NULL, bias: NULL, lse: NULL };
  const strides = { keepHeadStride: 0, keepRowStride: 0, biasHeadStride: 0, biasRowStride: 0 };
  const placed = { kvLen: position + 1, qStart: position };
  AttentionShape.store(memory.view(), shape, { ...SHAPE, ...rest, ...none, ...strides, ...placed });
  table.attention_f32(x, x, pointer.pages(at), x, shape, 0, of(position));
  yield 100 + position;
  table.rms_norm_f32(x, x, x, 4, 4, 1e-5, 0, 1);
  yield 7;
}

/** The calls that `run` makes, with the shape as it then is. */
function callsOf(run: () => void): unknown[] {
  const own = { ...table };
  const calls: unknown[] = [];
  const note =
    (name: string) =>
    (...args: number[]) => {
      calls.push([name, ...args, name === "attention_f32" ? [...memory.words().slice(at / 4, at / 4 + 28)] : []]);
    };
  Object.assign(table, { attention_f32: note("attention_f32"), rms_norm_f32: note("rms_norm_f32") });
  run();
  Object.assign(table, own);
  return calls;
}

test("a token at any position makes the calls that it would make without a plan", () => {
  const token = planToken(kernels, 6, stepsAt) as TokenCalls;
  for (const position of [6, 7, 300, 5, 2 ** 30]) {
    const expected = callsOf(() => finish(stepsAt(position)));
    memory.u8(at, 128).fill(255);
    expect(callsOf(() => finish(repeatCalls(kernels, token, position)))).toEqual(expected);
  }
  expect([...repeatCalls(kernels, token, 0)]).toEqual([106, 7]);
});

test("planning calls no kernel, and leaves the table as it was, even if a step throws", () => {
  const own = { ...table };
  expect(callsOf(() => planToken(kernels, 3, stepsAt))).toEqual([]);
  const failing = function* (): Steps {
    yield* stepsAt(3);
    throw new Error("a fault");
  };
  expect(() => planToken(kernels, 3, failing)).toThrow("a fault");
  expect({ ...table }).toEqual(own);
});

test("calls that differ in more than the position are not planned", () => {
  const plan = (of: (position: number) => number) => planToken(kernels, 8, (position) => stepsAt(position, of));
  expect(plan((position) => position + 40)).toBeDefined();
  expect(plan((position) => 2 * position)).toBeUndefined();
  expect(plan((position) => -position)).toBeUndefined();
  const longer = function* (position: number): Steps {
    yield* stepsAt(0);
    if (position % 2 === 1) yield 1;
  };
  expect(planToken(kernels, 8, longer)).toBeUndefined();
});
