// The package's doctor.html, in a frame, and what it reports.

import { run } from "./harness.mjs";
import { files } from "./package-files.mjs";

run(async () => {
  const frame = document.createElement("iframe");
  frame.src = `${files["doctor.html"]}?threads=2`;
  document.body.append(frame);
  for (;;) {
    const report = frame.contentDocument?.getElementById("report");
    if (report?.dataset.ok) return { ok: report.dataset.ok === "true", text: report.textContent };
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
});
