// The package's doctor.html, in a frame as wide as a phone, and what it reports.

import { run } from "./harness.mjs";
import { files } from "./package-files.mjs";

run(async () => {
  const frame = document.createElement("iframe");
  frame.src = `${files["doctor.html"]}?threads=2`;
  frame.width = 390;
  document.body.append(frame);
  for (;;) {
    const find = (id) => frame.contentDocument?.getElementById(id);
    const report = find("report");
    const root = frame.contentDocument?.documentElement;
    if (report?.dataset.ok)
      return {
        ok: report.dataset.ok === "true",
        text: report.textContent,
        verdict: find("verdict").textContent,
        headers: find("isolation").checkVisibility(),
        styled: frame.contentWindow.getComputedStyle(find("verdict")).fontWeight === "700",
        fits: root.scrollWidth === root.clientWidth,
      };
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
});
