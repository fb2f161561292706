/**
 * Readable twins of every kernel: the same names and arguments, arrays where the kernels take addresses, plain loops,
 * sums in double precision. They are the specification that the kernels are tested against, and a place to step through.
 */

import type { Reference } from "../abi.ts";
import { rms_norm_f32 } from "./norm.ts";

/** Every twin by its kernel's name. */
export const reference: Reference = { rms_norm_f32 };

export type { Reference };
export { rms_norm_f32 };
