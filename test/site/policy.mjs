// The policy of the site: what it allows, that no scenario violated it, and that a violation would have been reported.

import { expect } from "../examples/given.mjs";
import { visit } from "../examples/pages.mjs";
import { ready } from "./every-page.mjs";

export async function expectPolicy({ browser, url, violations }) {
  const header = (await fetch(`${url}index.html`)).headers.get("content-security-policy");
  const sources = Object.fromEntries(
    header.split("; ").map((directive) => [directive.split(" ")[0], directive.split(" ").slice(1).join(" ")]),
  );
  expect("default-src", sources["default-src"], "'none'");
  expect("script-src", sources["script-src"], "'self' 'wasm-unsafe-eval'");
  expect("style-src", sources["style-src"], "'self'");
  expect("violations in all scenarios", violations.join("\n"), "");
  await visit(browser, `${url}docs.html`, async (page) => {
    await ready(page);
    await page.evaluate(() => {
      const script = document.createElement("script");
      script.textContent = "globalThis.ran = true";
      const text = document.createElement("p");
      text.setAttribute("style", "color: red");
      document.body.append(script, text);
    });
    expect("an inline script ran", await page.evaluate(() => globalThis.ran === true), false);
    const end = Date.now() + 10_000;
    while (violations.length < 2 && Date.now() < end) await new Promise((done) => setTimeout(done, 50));
  });
  const directives = violations.map((report) => JSON.parse(report)["csp-report"]["violated-directive"]);
  expect("what was violated on purpose", directives.sort().join(), /^script-src(-elem)?,style-src(-attr)?$/);
  return "nothing was violated but on purpose";
}
