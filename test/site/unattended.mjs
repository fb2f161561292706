// A report of the doctor in Firefox with nothing attached. Under remote control a worker that starts workers, as threads are started
// here, does not go on about once in 20 visits (test/browsers/drivers/unattended.ts), and the page waits for ever.

import { startUnattended } from "../browsers/drivers/unattended.ts";

/** What the page runs first, by `first` of serveSite: it posts what it shows, to where its address says. */
export const REPORTER = `const to = new URLSearchParams(location.search).get("reports");
const timer = setInterval(() => {
  const report = document.getElementById("report");
  const done = report?.dataset.ok !== undefined;
  if (done) clearInterval(timer);
  const [step, text] = [document.getElementById("verdict")?.textContent, report?.textContent];
  const result = { verdict: step, text, needsHeaders: !document.getElementById("isolation")?.hidden };
  if (to) fetch(to, { method: "POST", mode: "no-cors", body: JSON.stringify({ done, step, result }) }).catch(() => {});
}, 200);
`;

/** What the doctor shows at an address: its verdict, its report, and whether it shows the headers that threads need. */
export async function visitUnattended(url) {
  const firefox = await startUnattended();
  try {
    return (await firefox.visit(url)).result;
  } finally {
    await firefox.close();
  }
}
