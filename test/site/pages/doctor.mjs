// The doctor: the published digest that Node has too, options and their address, copies, and a wrong number of threads.

import { selfTest } from "../../../dist/doctor.js";
import * as headwise from "../../../dist/index.js";
import { serveSite } from "../../../site/serve.ts";
import { expect } from "../../examples/given.mjs";
import { textOf, visit } from "../../examples/pages.mjs";
import { ready } from "../every-page.mjs";
import { expectShortTasks, ONLY_CHROME } from "../tasks.mjs";
import { REPORTER, visitUnattended } from "../unattended.mjs";

/** The digest that Node's kernels have, and whether it is the published one. */
async function digestOfNode() {
  const kernels = await headwise.loadKernels({ deterministic: true });
  const { digest, ok } = selfTest(headwise, kernels);
  kernels.release();
  expect("the self-test of Node", ok, true);
  return digest;
}

const rowsIn = (page) =>
  page.$$eval("#report > div", (all) =>
    Object.fromEntries(all.map((row) => [...row.children].map((each) => each.textContent.trim()))),
  );
const ended = (page) => page.waitForFunction(() => document.getElementById("report").dataset.ok !== undefined);

const open = (given, look, { view = "", url = given.url } = {}) =>
  visit(given.browser, `${url}doctor.html${view}`, async (page, errors) => {
    await ready(page);
    const found = await look(page);
    expect("errors of the page", errors.join("; "), "");
    return found;
  });

export const scenarios = {
  "the digest of Node": (given) =>
    open(
      given,
      async (page) => {
        expect("the verdict", await textOf(page, "#verdict"), "headwise works in this browser");
        const rows = await rowsIn(page);
        expect("the self-test", rows["self-test"], RegExp(`^ok: ${await digestOfNode()} as published`));
        expect("the build", rows.build, /^simd: /);
        expect("the policy", rows.policy, "refused nothing");
        for (const work of ["linear", "attention"]) expect(work, rows[work], /GFLOP\/s.*error \d/);
        return rows["self-test"];
      },
      { view: "#deterministic=yes" },
    ),
  "options are in the address, by the keyboard alone": (given) =>
    open(given, async (page) => {
      await page.focus("#deterministic");
      await page.keyboard.press(" ");
      await page.waitForFunction(() => document.getElementById("report").dataset.ok === undefined);
      await ended(page);
      expect("the build", (await rowsIn(page)).build, /^simd: /);
      expect("the address", new URL(page.url()).hash, "#deterministic=yes");
      await page.focus("#again");
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.getElementById("report").dataset.ok === undefined);
      await ended(page);
      expect("the focus", await page.evaluate(() => document.activeElement.id), "again");
      await page.$eval("#threads", (input) => input.select());
      await page.keyboard.type("none");
      await page.keyboard.press("Tab");
      expect("a wrong number", await page.$eval("#threads", (input) => input.checkValidity()), false);
      expect("the address without it", new URL(page.url()).hash, "#deterministic=yes");
    }),
  "options that are changed during a run count": (given) =>
    open(given, async (page) => {
      await page.evaluate(() => {
        document.getElementById("again").click();
        document.getElementById("deterministic").click();
        const threads = document.getElementById("threads");
        threads.value = "3";
        threads.dispatchEvent(new Event("change"));
      });
      await ended(page);
      const { build, threads } = await rowsIn(page);
      expect("the build", build, /^simd: /);
      expect("the threads", threads, /\(3 requested\)/);
    }),
  "a wrong number of threads in the address leaves a sentence": (given) =>
    open(
      given,
      async (page) => {
        expect("the verdict", await textOf(page, "#verdict"), "headwise does not start in this browser");
        expect("the sentence", await textOf(page, "#summary"), /^loadKernels: threads expected .*, got "many"$/);
        await page.$eval("#threads", (input) => input.select());
        await page.focus("#threads");
        await page.keyboard.type("1");
        await page.keyboard.press("Tab");
        await page.waitForFunction(() => document.getElementById("verdict").dataset.ok === "true");
      },
      { view: "#threads=many" },
    ),
  "how to get threads, and with the headers, threads": async (given) => {
    await open(given, async (page) => {
      expect("the headers are shown", await page.$eval("#isolation", ({ hidden }) => !hidden), true);
    });
    const { url, server } = await serveSite(0, { isolated: true, first: REPORTER });
    const address = `${url}doctor.html#threads=2`;
    try {
      const { verdict, text, needsHeaders } = await (given.kind === "firefox"
        ? visitUnattended(address)
        : visit(given.browser, address, async (page) => {
            await ready(page);
            return page.evaluate(() => ({
              verdict: document.getElementById("verdict").textContent,
              text: document.getElementById("report").textContent,
              needsHeaders: !document.getElementById("isolation").hidden,
            }));
          }));
      expect("the headers are shown", needsHeaders, false);
      expect("the verdict", verdict, "headwise works in this browser");
      // WebKitGTK gives pages no shared memory, whatever the headers.
      const threads = given.kind === "webkit" ? 1 : 2;
      expect("the threads", text, RegExp(`threads\\s*${threads} \\(2 requested\\): `));
      return /threads\s*(\d \(2 requested\): .*)/.exec(text)[1];
    } finally {
      server.closeAllConnections();
      server.close();
    }
  },
  "copies, and stays responsive": (given) =>
    open(given, async (page) => {
      await page.evaluate(() => {
        // What the page would copy; drivers may not read the clipboard.
        globalThis.copied = [];
        Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text) => copied.push(text) } });
      });
      await page.click("#text");
      await page.click("#json");
      await page.click("#copy-headers");
      const [text, json, headers] = await page.evaluate(() => globalThis.copied);
      expect("the text", text, /^headwise \d+\.\d+\.\d+: ok\nengine /);
      expect("the JSON", JSON.parse(json).ok, true);
      expect(
        "the headers",
        headers,
        /^Cross-Origin-Opener-Policy: same-origin\nCross-Origin-Embedder-Policy: require-corp$/,
      );
      if (given.kind !== "chrome") return ONLY_CHROME;
      return expectShortTasks(page, async () => {
        await page.click("#again");
        await page.waitForFunction(() => document.getElementById("report").dataset.ok === undefined);
        await ended(page);
      });
    }),
};
