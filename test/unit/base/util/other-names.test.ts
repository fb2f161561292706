import { expect, test } from "vitest";
import { readFields, readOptions } from "../../../../src/base/util/arguments.ts";
import { SESSION_OPTIONS } from "../../../../src/models/decoder/session.ts";
import { TEXT_OPTIONS } from "../../../../src/text/generate-text.ts";

const loose = readOptions as (where: string, options: unknown, known: readonly string[]) => unknown;
const GENERATE = ["temperature", "topK", "repetitionPenalty", "maxTokens", "stopIds"];
const LOAD = ["weights", "maxSeqLen", "store", "signal", "onProgress"];

test.each<[known: readonly string[], given: string, ours: string]>([
  [GENERATE, "max_new_tokens", "maxTokens"],
  [GENERATE, "maxNewTokens", "maxTokens"],
  [GENERATE, "max_length", "maxTokens"],
  [GENERATE, "do_sample", "temperature"],
  [GENERATE, "eos_token_id", "stopIds"],
  [GENERATE, "repeat_penalty", "repetitionPenalty"],
  [TEXT_OPTIONS, "stop_sequences", "stop"],
  [TEXT_OPTIONS, "stop_strings", "stop"],
  [SESSION_OPTIONS, "max_length", "maxSeqLen"],
  [LOAD, "n_ctx", "maxSeqLen"],
  [LOAD, "dtype", "weights"],
  [LOAD, "progress_callback", "onProgress"],
  [LOAD, "cache_dir", "store"],
])("of %j, %s is answered with %s", (known, given, ours) => {
  expect(() => loose("f", { [given]: undefined }, known)).toThrow(
    new TypeError(`f: options expected ${ours} instead, got "${given}"`),
  );
});

test.each([
  ["max_tokens", "maxTokens"],
  ["top_k", "topK"],
  ["TOPK", "topK"],
  ["repetition_penalty", "repetitionPenalty"],
])("%s, ours but for case and underscores, is answered with %s behind all that are known", (given, ours) => {
  expect(() => loose("f", { [given]: 1 }, GENERATE)).toThrow(
    new TypeError(`f: options expected only ${GENERATE.join(", ")}, got "${given}": use ${ours}`),
  );
});

test("other names are refused without a guess, and values that are no objects by their type", () => {
  for (const name of ["constructor", "toString", "num_beams", "stop"])
    expect(() => loose("f", { [name]: 1 }, GENERATE)).toThrow(new RegExp(`, got "${name}"$`));
  expect(() => loose("f", null, LOAD)).toThrow("f: options expected an object, got null");
  expect(() => loose("f", "text", LOAD)).toThrow('f: options expected an object, got "text"');
});

test("a list of names that lacks a field of the options, or has another, does not compile", () => {
  const options: { readonly keys?: number; readonly values?: number } = { keys: 1 };
  expect(readFields("f", "options", options, ["keys", "values"])).toEqual({ keys: 1 });
  // @ts-expect-error: values is missing
  readFields("f", "options", options, ["keys"]);
  // @ts-expect-error: there are no queries
  readFields("f", "options", options, ["keys", "values", "queries"]);
  // @ts-expect-error: which names the list has is not known
  readFields("f", "options", options, ["keys", "values"] as string[]);
});
