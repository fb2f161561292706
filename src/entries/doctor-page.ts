// The script of doctor.html: `headwise info` for the browser that shows it. ?threads=N and ?deterministic in the address
// are its options.

import { diagnose } from "../tools/diagnostics/doctor.ts";
import { expectThreads } from "../wasm/kernels.ts";
import { type PageDiagnosis, showDoctor } from "./doctor-view.ts";

const refused = new Set<string>();
document.addEventListener("securitypolicyviolation", ({ effectiveDirective, blockedURI }) => {
  refused.add(`${effectiveDirective} refused ${blockedURI}`);
});

async function diagnosePage(): Promise<PageDiagnosis> {
  refused.clear();
  const asked = new URLSearchParams(location.search);
  const threads = asked.get("threads") ?? "auto";
  const options = {
    threads: expectThreads(/^\d+$/.test(threads) ? Number(threads) : threads),
    deterministic: asked.has("deterministic"),
  };
  const surroundings = {
    version: document.documentElement.dataset.version ?? "",
    engine: navigator.userAgent,
    processors: navigator.hardwareConcurrency,
  };
  const diagnosis = await diagnose(await import("./threads.ts"), surroundings, options);
  // Violations are reported with a delay.
  await new Promise((resolve) => setTimeout(resolve, 100));
  return { ...diagnosis, refused: [...refused] };
}

void showDoctor(diagnosePage);
