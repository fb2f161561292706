/**
 * Diagnosis of an engine: its features, and whether headwise is correct and fast in it.
 * @packageDocumentation
 */

export {
  type Diagnosis,
  type DotProducts,
  diagnose,
  diagnosisText,
  type EngineFeatures,
  type Headwise,
  type Surroundings,
  type WorkReport,
} from "../tools/diagnostics/doctor.ts";
export { type SelfTest, type SelfTested, selfTest } from "../tools/diagnostics/self-test.ts";
export type { DotProduct } from "../wasm/int-dot.ts";
