import { attentionCases } from "./attention.ts";
import { casePart } from "./cases.ts";
import { integerCases } from "./integers.ts";
import { linearCases } from "./linear.ts";
import { smallCases } from "./small.ts";

export const kernels = casePart("kernels", [...linearCases, ...integerCases, ...attentionCases, ...smallCases]);
