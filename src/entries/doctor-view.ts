// The elements of a page that shows a diagnosis: doctor.html, and the site's page of this name. Both have the same ids.

import { type Diagnosis, diagnosisText } from "../tools/diagnostics/doctor.ts";
import { copyText } from "./copy.ts";

/** A diagnosis, and what the page's content security policy blocked during it. */
export interface PageDiagnosis extends Diagnosis {
  readonly refused: readonly string[];
}

/** What the page shows of a run. */
interface View {
  readonly ok: boolean;
  /** The result in a few words, and what it is based on. */
  readonly verdict: string;
  readonly summary: string;
  /** The report: titles, padded to one width, and texts. */
  readonly rows: readonly (readonly [title: string, text: string])[];
  /** What is copied. */
  readonly text: string;
  readonly json: string;
  /** Whether the headers are to be shown that allow threads. */
  readonly lacksIsolation: boolean;
}

/** Characters of a title in the report. */
const TITLE = 11;

/** A row of the list. With the spaces and the end of the line, the list's text is that of the report. */
function rowOf([name, value]: View["rows"][number]): HTMLElement {
  const row = document.createElement("div");
  const [title, text] = [document.createElement("dt"), document.createElement("dd")];
  title.textContent = name;
  text.textContent = `${value}\n`;
  row.append(title, text);
  return row;
}

function viewOf(diagnosis: PageDiagnosis): View {
  const policy = diagnosis.refused.length > 0 ? diagnosis.refused.join("; ") : "refused nothing";
  const text = `${diagnosisText(diagnosis)}\n${"policy".padEnd(TITLE)}${policy}`;
  const { ok, features, problem } = diagnosis;
  const lines = text.split("\n").slice(1);
  return {
    ...{ ok, text, ...verdictOf(diagnosis) },
    rows: lines.map((line) => [line.slice(0, TITLE), line.slice(TITLE)]),
    json: JSON.stringify(diagnosis, null, 2),
    lacksIsolation: problem === undefined && features.threads && features.isolated === false,
  };
}

function verdictOf({ ok, problem, kernels }: Diagnosis): Pick<View, "verdict" | "summary"> {
  if (problem) return { verdict: "headwise does not start in this browser", summary: problem.message };
  if (!ok)
    return {
      verdict: "headwise computes wrong bits in this browser",
      summary: "The self-test failed. Please report it, with the text below.",
    };
  const { used = 1 } = kernels?.threads ?? {};
  const running = kernels ? `, with the ${kernels.build} build on ${used} ${used === 1 ? "thread" : "threads"}` : "";
  return { verdict: "headwise works in this browser", summary: `The self-test passed${running}.` };
}

/** Diagnoses now, which the promise waits for, and whenever the button says so. */
export function showDoctor(diagnosePage: () => Promise<PageDiagnosis>): Promise<void> {
  const element = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;
  const [verdict, summary, report, copied, isolation] = ["verdict", "summary", "report", "copied", "isolation"].map(
    (id) => element(id),
  ) as [HTMLElement, HTMLElement, HTMLElement, HTMLElement, HTMLElement];
  const buttons = ["again", "text", "json"].map((id) => element<HTMLButtonElement>(id));
  const manual = element<HTMLTextAreaElement>("manual");
  let shown: Pick<View, "text" | "json"> = { text: "", json: "" };

  /** For scripts that wait for the end: `document.getElementById("report").dataset.ok` is then "true" or "false". */
  function show(view: View): void {
    shown = view;
    verdict.textContent = view.verdict;
    verdict.dataset.ok = String(view.ok);
    summary.textContent = view.summary;
    isolation.hidden = !view.lacksIsolation;
    report.replaceChildren(...view.rows.map(rowOf));
    report.dataset.ok = String(view.ok);
  }

  async function examine(): Promise<void> {
    const { activeElement } = document;
    for (const button of buttons) button.disabled = true;
    copied.textContent = "";
    manual.hidden = true;
    delete report.dataset.ok;
    delete verdict.dataset.ok;
    verdict.textContent = "Measuring …";
    summary.textContent = "This takes about two seconds.";
    report.replaceChildren();
    isolation.hidden = true;
    try {
      show(viewOf(await diagnosePage()));
    } catch (error) {
      const text = String(error);
      const json = JSON.stringify({ ok: false, problem: { message: text } });
      show({
        ...{ ok: false, rows: [], text, json, lacksIsolation: false },
        verdict: "Nothing was measured",
        summary: text,
      });
    }
    for (const button of buttons) button.disabled = false;
    // A button that was disabled has lost the focus to the page.
    if (document.activeElement === document.body) buttons.find((button) => button === activeElement)?.focus();
  }

  element("again").addEventListener("click", () => void examine());
  element("text").addEventListener("click", () => void copyText(shown.text, copied, manual));
  element("json").addEventListener("click", () => void copyText(shown.json, copied, manual));
  element("copy-headers").addEventListener(
    "click",
    () => void copyText(element("headers").textContent ?? "", element("headers-copied"), manual),
  );
  return examine();
}
