// `headwise info`: what this machine can do.

import { arch, availableParallelism, cpus, release, totalmem, type } from "node:os";
import { diagnose, diagnosisText, type Surroundings } from "../entries/doctor.ts";
import { readArguments, readThreads, refusePositionals } from "./args.ts";
import { helpOf, KERNEL_OPTIONS, OUTPUT_OPTIONS } from "./options.ts";
import { paint, print } from "./terminal.ts";

/** Characters of a version that are shown: some are the hash of a commit. */
const LONGEST = 24;

/** What is known about the runtime and the machine. Some hosts refuse a part of it. */
export function findSurroundings(version: string): Surroundings {
  const asked = <T>(ask: () => T): T | undefined => {
    try {
      return ask();
    } catch {
      return undefined;
    }
  };
  return {
    version,
    engine: engineText(process.versions),
    system: asked(() => `${type()} ${release()} ${arch()}`),
    processor: asked(() => cpus()[0]?.model.trim()),
    processors: asked(availableParallelism),
    memory: asked(totalmem),
  };
}

/** The machine in words, as far as it is known. */
export function machineText({ processor, processors, memory }: Surroundings): string {
  const parts = [
    processor,
    processors && `${processors} ${processors === 1 ? "processor" : "processors"}`,
    memory && `${(memory / 2 ** 30).toFixed(1)} GiB`,
  ];
  return parts.filter(Boolean).join(", ") || "unknown machine";
}

/** Runtimes that emulate Node report versions of Node and V8 too, so their own are looked up first. */
function engineText(versions: Readonly<Record<string, string | undefined>>): string {
  const named = (names: Readonly<Record<string, string>>) => {
    const found = Object.keys(names).find((name) => versions[name] !== undefined);
    return found && `${names[found]} ${versions[found]?.slice(0, LONGEST)}`;
  };
  const runtime = named({ deno: "Deno", bun: "Bun", node: "Node" });
  const engine = named({ webkit: "WebKit", v8: "V8" });
  return [runtime, engine].filter(Boolean).join(", ");
}

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
  const options = {
    threads: readThreads("info", values.threads ?? "1"),
    deterministic: values.deterministic,
    quantized,
  };
  const diagnosis = await diagnose(await import("../entries/threads.ts"), findSurroundings(version), options);
  const text = diagnosisText(diagnosis)
    .replace(/: ok\b/g, `: ${paint("green", "ok")}`)
    .replace(/: FAILED\b/g, `: ${paint("red", "FAILED")}`);
  print(values.json ? JSON.stringify(diagnosis, null, 2) : text);
  if (!diagnosis.ok) process.exitCode = 1;
}
