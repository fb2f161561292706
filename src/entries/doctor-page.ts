// The script of doctor.html: `headwise info` for the browser that shows it. ?threads=N and ?deterministic in the address
// are its options.

import { type Diagnosis, diagnose } from "../diagnostics/doctor.ts";
import { diagnosisText } from "../diagnostics/doctor-text.ts";
import { expectThreads } from "../wasm/kernels.ts";

/** A diagnosis, and what the page's content security policy blocked during it. */
interface PageDiagnosis extends Diagnosis {
  readonly refused: readonly string[];
}

const element = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;
const [report, copied] = [element("report"), element("copied")];
const buttons = ["again", "text", "json"].map((id) => element<HTMLButtonElement>(id));

const refused = new Set<string>();
document.addEventListener("securitypolicyviolation", ({ effectiveDirective, blockedURI }) => {
  refused.add(`${effectiveDirective} refused ${blockedURI}`);
});

let shown = { text: "", json: "" };

/** For scripts that wait for the end: `document.getElementById("report").dataset.ok` is then "true" or "false". */
function show(ok: boolean, text: string, json: string): void {
  shown = { text, json };
  report.textContent = text;
  report.dataset.ok = String(ok);
}

async function examine(): Promise<void> {
  for (const button of buttons) button.disabled = true;
  copied.textContent = "";
  delete report.dataset.ok;
  report.textContent = "Two seconds …";
  try {
    const diagnosis = await diagnosePage();
    const policy = diagnosis.refused.length > 0 ? diagnosis.refused.join("; ") : "refused nothing";
    show(diagnosis.ok, `${diagnosisText(diagnosis)}\npolicy     ${policy}`, JSON.stringify(diagnosis, null, 2));
  } catch (error) {
    show(false, String(error), JSON.stringify({ ok: false, problem: { message: String(error) } }));
  }
  for (const button of buttons) button.disabled = false;
}

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

/** Without the clipboard, which only secure contexts have, the text is selected instead. */
async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    copied.textContent = "copied";
  } catch {
    report.textContent = text;
    getSelection()?.selectAllChildren(report);
    copied.textContent = "selected: copy it with the keyboard";
  }
}

element("again").addEventListener("click", () => void examine());
element("text").addEventListener("click", () => void copy(shown.text));
element("json").addEventListener("click", () => void copy(shown.json));
void examine();
