// Functions that moved to another entry: their old names work for this version.

import { warnOld } from "../base/platform/host.ts";
import { attend, attendWithMaps } from "../layers/api/attend.ts";
import { scaledDotProductAttention } from "../layers/api/sdpa.ts";
import { createAttention, createCache } from "../layers/attention/attention.ts";
import { type SelfTest, selfTest as testSelf } from "../tools/diagnostics/self-test.ts";
import type { Kernels } from "../wasm/kernels.ts";

/**
 * `selfTest` of `headwise/doctor`.
 * @deprecated Use that one, which is given this module besides. It is no more here in the next version.
 * @example
 * import * as headwise from "headwise";
 * import { selfTest } from "headwise/doctor";
 * const kernels = await headwise.loadKernels();
 * console.log(selfTest(headwise, kernels).ok); // true
 */
export function selfTest(kernels: Kernels): SelfTest {
  warnOld("selfTest of headwise", "selfTest of headwise/doctor");
  return testSelf({ createAttention, createCache, attend, attendWithMaps, scaledDotProductAttention }, kernels);
}
