/**
 * Diagnosis of an engine: its features, and whether headwise is correct and fast in it.
 * @packageDocumentation
 */

export {
  type Diagnosis,
  type DotProducts,
  diagnose,
  type EngineFeatures,
  type Headwise,
  type Surroundings,
  type WorkReport,
} from "../diagnostics/doctor.ts";
export { diagnosisText } from "../diagnostics/doctor-text.ts";
export type { DotProduct } from "../wasm/int-dot.ts";
