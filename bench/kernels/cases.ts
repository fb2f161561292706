import type { Case } from "../lib/case.ts";
import { casePart } from "../lib/case-part.ts";
import { attentionCases } from "./attention.ts";
import { linearCases } from "./linear.ts";
import { quantizedLinearCases } from "./linear-quantized.ts";
import { otherCases } from "./other-kernels.ts";

/** Every case that calls one kernel. */
export const kernelCases: readonly Case[] = [...linearCases, ...quantizedLinearCases, ...attentionCases, ...otherCases];

export const kernels = casePart("kernels", kernelCases);
