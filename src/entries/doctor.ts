/** What an engine can do, and whether headwise is right and fast in it: one report for the command line and for pages. */

export {
  type Diagnosis,
  diagnose,
  diagnosisText,
  type EngineFeatures,
  type Headwise,
  type Surroundings,
  type WorkReport,
} from "../diagnostics/doctor.ts";
