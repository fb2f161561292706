import { diagnose } from "../diagnostics/doctor.ts";
import { diagnosisText } from "../diagnostics/doctor-text.ts";
import { readArguments, readThreads, refusePositionals } from "./args.ts";
import { helpOf, KERNEL_OPTIONS, OUTPUT_OPTIONS } from "./common-options.ts";
import { print } from "./output.ts";
import { findSurroundings } from "./system-info.ts";
import { paint } from "./text.ts";

const HELP = `headwise info [--threads N|auto] [--deterministic] [--json]

Diagnoses this engine in about two seconds: its features, the build and the threads that run and why,
the self-test, the speed next to the peak of one core, and errors against float64. Exits with 1 if
the kernels do not start or the self-test fails.

${helpOf("threads", "deterministic", "json")}`;

const OPTIONS = {
  ...KERNEL_OPTIONS,
  ...OUTPUT_OPTIONS,
} as const;

/** `headwise info`. */
export async function info(args: string[], version: string): Promise<void> {
  const { values, positionals } = readArguments("info", args, OPTIONS);
  if (values.help) return print(HELP);
  refusePositionals("info", positionals);
  const { quantized } = await import("../entries/quantized.ts");
  const options = { threads: readThreads("info", values.threads), deterministic: values.deterministic, quantized };
  const diagnosis = await diagnose(await import("../entries/threads.ts"), findSurroundings(version), options);
  const text = diagnosisText(diagnosis)
    .replace(/: ok\b/g, `: ${paint("green", "ok")}`)
    .replace(/: FAILED\b/g, `: ${paint("red", "FAILED")}`);
  print(values.json ? JSON.stringify(diagnosis, null, 2) : text);
  if (!diagnosis.ok) process.exitCode = 1;
}
