/**
 * A readable twin of every kernel: the same name and arguments, with arrays instead of addresses, plain loops, and sums in
 * double precision. Tests compare the kernels with these functions, and a debugger can step through them. `attendReference` is a
 * whole layer in the same way, on one page.
 * @packageDocumentation
 */

import type { Reference } from "../wasm/abi.ts";
import * as attention from "./attention.ts";
import * as decoder from "./decoder.ts";
import * as latent from "./latent.ts";
import * as linear from "./linear.ts";
import * as pointwise from "./pointwise.ts";
import * as recurrent from "./recurrent.ts";

/** All twins by the names of their kernels. */
export const reference: Reference = /* @__PURE__ */ (() => ({
  ...{ ...attention, ...decoder, ...latent },
  ...{ ...linear, ...pointwise, ...recurrent },
}))();

export type { CheckedConfig } from "../layers/attention/config.ts";
export { attendReference, type ReferenceOptions, type ReferenceWeights } from "./attend.ts";
export * from "./attention.ts";
export * from "./decoder.ts";
export * from "./latent.ts";
export * from "./linear.ts";
export * from "./pointwise.ts";
export * from "./recurrent.ts";
export type { Reference };
