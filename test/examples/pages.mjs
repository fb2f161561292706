// The pages in Chromium: their text, the bits of their logits, and their maps.

import { existsSync } from "node:fs";
import { availableParallelism } from "node:os";
import { CONTINUATION, expect, expectChoices, PROMPT } from "./given.mjs";
import { end, run, serve } from "./processes.mjs";

const CHROMIUM = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** Starts Chromium; if it is missing, the script of the browser tests installs it. */
export async function launch(puppeteer, installer) {
  const find = () => [process.env.CHROMIUM, ...CHROMIUM].find((path) => path && existsSync(path));
  if (!find()) await run("sh", [installer], { seconds: 300 });
  if (!find()) throw new Error("Chromium is not installed: see test/browsers, or name one in the variable CHROMIUM");
  return puppeteer.launch({ executablePath: find(), args: ["--no-sandbox", "--disable-dev-shm-usage"] });
}

/** Calls `look(page, errors)` with a page at `url`; `errors` are the errors that the page reports. */
async function visit(browser, url, look) {
  const page = await browser.newPage();
  page.setDefaultTimeout(30_000);
  const errors = [];
  page.on("pageerror", (error) => errors.push(error.message));
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  page.on("requestfailed", (request) => errors.push(`${request.url()}: ${request.failure()?.errorText}`));
  try {
    await page.goto(url);
    return await look(page, errors);
  } catch (error) {
    error.message += `\nerrors of the page: ${errors.join("; ")}\n${await page.$eval("body", (body) => body.innerText).catch(String)}`;
    throw error;
  } finally {
    await page.close();
  }
}

const textOf = (page, selector) => page.$eval(selector, (element) => element.textContent);

/** Throws unless each of eight canvases has many shades; a blank one would have one. */
async function expectMaps(page) {
  const shades = await page.$$eval("canvas", (canvases) =>
    canvases.map((canvas) => {
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      return { side: canvas.width, shades: new Set(new Uint32Array(data.buffer)).size, label: canvas.ariaLabel };
    }),
  );
  expect("the number of maps", shades.length, 8);
  for (const { side, shades: count, label } of shades) {
    expect("the side of a map", side, PROMPT.length + CONTINUATION.length);
    expect(`more than ten shades in ${label}`, count > 10, true);
  }
}

/** The page without a bundler, with or without the headers that threads need. */
async function plainPage({ folder, browser, exact }, isolated) {
  const { child, url } = await serve(process.execPath, ["serve.mjs", "0", ...(isolated ? ["--isolated"] : [])], {
    cwd: folder("browser"),
  });
  const choices = (page) =>
    page.$$eval("#text span", (spans) =>
      spans.map(({ textContent, title }) => ({ character: textContent, logit: Number(title.split(" ")[1]) })),
    );
  const reason = await visit(browser, `${url}?deterministic`, async (page, errors) => {
    await page.waitForSelector("#text span");
    expect("the build", await textOf(page, "#build"), "build simd");
    expect("the text", await textOf(page, "#text"), PROMPT + CONTINUATION);
    expectChoices(await choices(page), exact, PROMPT, CONTINUATION.length);
    await expectMaps(page);
    const captions = await page.$$eval("figcaption", (all) => all.map((caption) => caption.innerText));
    for (const [i, caption] of captions.slice(4).entries())
      expect(`the caption of layer 1 head ${i}`, caption, /^layer 1 head \d · induction/);
    await page.hover("canvas");
    const label = await textOf(page, "#cell");
    const [query, key] = Array.from(label.matchAll(/ at (\d+)/g), ([, at]) => Number(at));
    const weight = exact.weight(PROMPT + CONTINUATION, 0, 0, query, key).toFixed(3);
    const named = (i) => `${JSON.stringify((PROMPT + CONTINUATION)[i])} at ${i}`;
    expect(
      "the weight under the pointer",
      label,
      `layer 0 head 0: ${named(query)} looks at ${named(key)} with ${weight}`,
    );

    await page.click("#threads");
    await page.waitForFunction(() => document.getElementById("reason").textContent !== "");
    const threads = await textOf(page, "#reason");
    expect(
      "the reason",
      threads,
      isolated ? RegExp(`^${threadsHere()}`) : /^One thread: this page is not cross-origin isolated/,
    );
    expectChoices(await choices(page), exact, PROMPT, CONTINUATION.length);

    await page.$eval("#prompt", (input) => input.select());
    await page.type("#prompt", "hello, hel");
    expect("the text as typed", await textOf(page, "#text"), /^hello, hello, hello/);
    await page.type("#prompt", "é");
    expect("a character without a token", await textOf(page, "#text"), /^The model does not know the character "é"\.$/);
    expect("errors of the page", errors.join(), "");
    return threads;
  });
  await visit(browser, url, async (page) => {
    await page.waitForSelector("#text span");
    expect("the text of the chosen build", await textOf(page, "#text"), PROMPT + CONTINUATION);
  });
  end(child);
  return `the bits of Node; ${reason.slice(0, 70)}`;
}

const threadsHere = () =>
  availableParallelism() > 1 ? `${Math.min(8, availableParallelism())} threads: ` : "One thread: ";

export const plain = (given) => plainPage(given, false);
export const isolated = (given) => plainPage(given, true);

/** The Vite project: `npm run …` of a command that serves it. */
async function vitePage({ folder, browser, exact, freePort, npm }, script) {
  const flags = ["--host", "127.0.0.1", "--port", String(await freePort()), "--strictPort"];
  const { child, url } = await serve(npm, ["run", script, "--", ...flags], { cwd: folder("vite") });
  await visit(browser, `${url}?deterministic`, async (page, errors) => {
    await page.waitForSelector("canvas");
    expect("the text", await textOf(page, "#text"), PROMPT + CONTINUATION);
    const logits = await page.$eval("#text", ({ title }) => title.split(" ").map(Number));
    const choices = logits.map((logit, i) => ({ character: CONTINUATION[i], logit }));
    expectChoices(choices, exact, PROMPT, CONTINUATION.length);
    await expectMaps(page);
    expect("errors of the page", errors.join(), "");
  });
  end(child);
}

export async function viteBuild(given) {
  const output = await run(given.npm, ["run", "build"], { cwd: given.folder("vite") });
  await vitePage(given, "preview");
  const [script] = /dist\/assets\/index-.*\.js.*/.exec(output) ?? ["no script"];
  return `type-checked; ${script.replace(/\s+/g, " ")}; the bits of Node`;
}

export async function viteDev(given) {
  await vitePage(given, "dev");
  return "the bits of Node";
}
