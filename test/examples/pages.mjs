// The pages of maps and of Vite in Chromium: their text, the bits of their logits, and their maps.

import { existsSync } from "node:fs";
import { availableParallelism } from "node:os";
import { CONTINUATION, expect, expectChoices, PROMPT } from "./given.mjs";
import { end, run, serve } from "./processes.mjs";
import { BEGINNING } from "./stories.mjs";

const PATHS = {
  chrome: [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"],
  firefox: [process.env.FIREFOX, "/usr/bin/firefox-esr", "/usr/bin/firefox"],
};

/** Starts a browser, with options of puppeteer; if it is missing, the script of the browser tests installs it. */
export async function launch(puppeteer, browser, installer, options = {}) {
  const find = () => PATHS[browser].find((path) => path && existsSync(path));
  if (!find()) await run("sh", [installer], { seconds: 300 });
  if (!find())
    throw new Error(`${browser} is not installed: see test/browsers, or name one in the variable CHROMIUM or FIREFOX`);
  const args = browser === "chrome" ? ["--no-sandbox", "--disable-dev-shm-usage"] : [];
  return puppeteer.launch({ browser, executablePath: find(), args, ...options });
}

/** What Firefox says, in the console or as an error, of the icon of a page that is left while its service worker reads it. */
const LEFT_ICON = /^Failed to load ‘[^’]*\/icon[^’/]*\.svg’\. A ServiceWorker intercepted the request/;

/** Calls `look(page, errors)` with a page at `url`; `errors` are the errors that the page reports. */
export async function visit(browser, url, look) {
  const page = await browser.newPage();
  page.setDefaultTimeout(30_000);
  const errors = [];
  const report = (text) => LEFT_ICON.test(text) || errors.push(text);
  page.on("pageerror", (error) => report(error.message));
  page.on("console", (message) => message.type() === "error" && report(message.text()));
  page.on("requestfailed", (request) => {
    const why = request.failure()?.errorText ?? "";
    // A page that is left ends what it still asked for.
    if (!why.endsWith("_ABORTED")) errors.push(`${request.url()}: ${why}`);
  });
  const open = new Set();
  page.on("request", (request) => open.add(request));
  for (const end of ["requestfinished", "requestfailed"]) page.on(end, (request) => open.delete(request));
  try {
    // A tab in the background gets no animation frames. WebKit's driver shows each window.
    await page.bringToFront?.();
    await page.goto(url);
    return await look(page, errors);
  } catch (error) {
    const requests = [...open].map((request) => request.url()).join(", ");
    error.message += `\nerrors of the page: ${errors.join("; ")}\nrequests without an end: ${requests || "none"}\n${await stateOf(page)}`;
    throw error;
  } finally {
    await page.close();
  }
}

/** What a page can say of itself: whether it is shown and loaded, whether a service worker answers for it, and its text. */
const stateOf = (page) =>
  page
    .evaluate(() => {
      const { visibilityState, readyState, body } = document;
      const { controller } = navigator.serviceWorker ?? {};
      const worker = controller ? `service worker ${controller.state}` : "no service worker";
      return `${visibilityState}, ${readyState}, ${worker}\n${body?.innerText}`;
    })
    .catch(String);

export const textOf = (page, selector) => page.$eval(selector, (element) => element.textContent);

/** Throws unless each of `number` canvases has many shades; a blank one would have one. */
async function expectMaps(page, number) {
  const shades = await page.$$eval("canvas", (canvases) =>
    canvases.map((canvas) => {
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      return { side: canvas.width, shades: new Set(new Uint32Array(data.buffer)).size };
    }),
  );
  expect("the number of maps", shades.length, number);
  for (const [i, { side, shades: count }] of shades.entries()) {
    expect("the side of a map", side, PROMPT.length + CONTINUATION.length);
    expect(`more than ten shades in map ${i}`, count > 10, true);
  }
}

const DESK = { width: 1280, height: 1100 };
const PHONE = { width: 390, height: 844 };

/** Throws unless a page fits the width of a phone, in which nothing is scrolled sideways. */
export async function expectNarrow(page) {
  await page.setViewport(PHONE);
  const [whole, seen] = await page.evaluate(() => {
    const { scrollWidth, clientWidth } = document.documentElement;
    return [scrollWidth, clientWidth];
  });
  expect(`the page's width on a phone, ${whole} of ${seen} pixels`, whole === seen && seen <= PHONE.width, true);
  await page.setViewport(DESK);
}

/** What the page of the maps shows in words besides the text; empty strings where there is no result. */
const figuresOf = (page) =>
  page.evaluate(() =>
    ["times", "cell", "head", "scores", "heads", "keys"].map((id) => document.getElementById(id).innerText.trim()),
  );

const NEWLINES = /\s+/g;

/** The read-out of a cell, as the page should show it. */
function cellText(exact, text, query, key) {
  const named = (i) => `${JSON.stringify(text[i])} at ${i}`;
  const weight = exact.weight(text, 0, 0, query, key).toFixed(3);
  const later = key > query ? ", because that comes later" : "";
  return `layer 0 head 0: ${named(query)} looks at ${named(key)} with ${weight}${later}`;
}

/** The map with labels: a pointer and the keyboard move over its cells, and the read-out beside it follows. */
async function expectLargeMap(page, exact) {
  await page.setViewport(DESK);
  const text = PROMPT + CONTINUATION;
  const at = (query, key) => cellText(exact, text, query, key);
  const { x, y, width, height } = await (await page.$("#plot")).boundingBox();
  const cell = width / text.length;
  await page.mouse.move(x + 3.5 * cell, y + 8.5 * cell);
  expect("the cell under the pointer", await textOf(page, "#cell"), at(8, 3));
  const readout = await (await page.$(".readout")).boundingBox();
  expect("the read-out beside the map", readout.x >= x + width && readout.y < y + height, true);

  await page.focus("#plot");
  expect(
    "a ring around the map that has the focus",
    await page.$eval("#plot", (plot) => plot.matches(":focus-visible") && getComputedStyle(plot).outlineStyle),
    "solid",
  );
  const press = async (...keys) => {
    for (const key of keys) await page.keyboard.press(key);
    return textOf(page, "#cell");
  };
  expect("left and up", await press("ArrowLeft", "ArrowUp"), at(7, 2));
  expect("down and right", await press("ArrowDown", "ArrowDown", "ArrowRight"), at(9, 3));
  expect("home", await press("Home"), at(9, 0));
  expect("no further than the edge", await press("ArrowLeft"), at(9, 0));
  expect("end, the query itself", await press("End"), at(9, 9));
  expect("a later key", await press("ArrowRight"), at(9, 10));
  await press("ArrowLeft");

  const labels = (axis) =>
    page.$$eval(`#${axis} span`, (spans) =>
      spans.map(({ textContent, hidden, className }) => ({ textContent, hidden, className })),
    );
  for (const axis of ["keys", "queries"]) {
    const all = await labels(axis);
    expect(`labels of ${axis}`, all.map(({ textContent }) => textContent).join(""), text.replaceAll(" ", "·"));
    expect(
      `the marked label of ${axis}`,
      all.findIndex(({ className }) => className === "here"),
      9,
    );
    expect(`hidden labels of ${axis}`, all.filter(({ hidden }) => hidden).length, 0);
  }
  await page.setViewport(PHONE);
  // There is room for half of the labels; they are placed after the next frame.
  await page.waitForFunction(() => {
    const labels = [...document.querySelectorAll("#queries span:not([hidden]):not(.here)")];
    const boxes = labels.map((label) => label.getBoundingClientRect());
    return boxes.every(({ top }, i) => i === 0 || top >= boxes[i - 1].bottom - 3);
  });
  await page.setViewport(DESK);

  const buttons = await page.$$("#heads button");
  await buttons[5].click();
  expect("the chosen head", await textOf(page, "#head"), "layer 1 head 1: induction");
  expect(
    "its button",
    await page.$$eval("#heads button", (all) => all.map(({ ariaPressed }) => ariaPressed).join()),
    "false,false,false,false,false,true,false,false",
  );
  expect(
    "the read-out of the chosen head",
    await textOf(page, "#cell"),
    /^layer 1 head 1: .* at 9 looks at .* at 9 with /,
  );
}

/** The page of maps, with or without the headers that threads need. */
async function mapsPage({ folder, browser, exact }, isolated) {
  const { child, url } = await serve(process.execPath, ["serve.mjs", "0", ...(isolated ? ["--isolated"] : [])], {
    cwd: folder("browser"),
  });
  const choices = (page) =>
    page.$$eval("#text span", (spans) =>
      spans.map(({ textContent, title }) => ({ character: textContent, logit: Number(title.split(" ")[1]) })),
    );
  const reason = await visit(browser, `${url}maps.html?deterministic`, async (page, errors) => {
    await page.waitForSelector("#text span");
    expect("the build", await textOf(page, "#build"), "build simd");
    expect("the text", await textOf(page, "#text"), PROMPT + CONTINUATION);
    expectChoices(await choices(page), exact, PROMPT, CONTINUATION.length);
    await expectMaps(page, 9);
    const captions = await page.$$eval("#heads button", (all) => all.map((button) => button.innerText.trim()));
    for (const [i, caption] of captions.slice(4).entries())
      expect(`the caption of layer 1 head ${i}`, caption.replace(NEWLINES, " "), `layer 1 head ${i} induction`);
    await expectLargeMap(page, exact);
    await expectNarrow(page);

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
    expect("figures beside an error", (await figuresOf(page)).join(""), "");
    await page.keyboard.press("Backspace");
    expect("the text without it", await textOf(page, "#text"), /^hello, hello, hello/);
    expect(
      "figures of a text",
      (await figuresOf(page)).every((figure) => figure !== ""),
      true,
    );
    await page.$eval("#prompt", (input) => input.select());
    await page.keyboard.press("Backspace");
    expect("no text", await textOf(page, "#text"), "Type a text.");
    expect("figures without a text", (await figuresOf(page)).join(""), "");
    expect("errors of the page", errors.join(), "");
    return threads;
  });
  await visit(browser, `${url}maps.html`, async (page) => {
    await page.waitForSelector("#text span");
    expect("the text of the chosen build", await textOf(page, "#text"), PROMPT + CONTINUATION);
  });
  end(child);
  return `the bits of Node; ${reason.slice(0, 70)}`;
}

export const threadsHere = () =>
  availableParallelism() > 1 ? `${Math.min(8, availableParallelism())} threads: ` : "One thread: ";

export const maps = (given) => mapsPage(given, false);
export const mapsIsolated = (given) => mapsPage(given, true);

/** The Vite project: `npm run …` of a command that serves it. */
async function vitePage({ folder, browser, exact, freePort, npm }, script) {
  const flags = ["--host", "127.0.0.1", "--port", String(await freePort()), "--strictPort"];
  const { child, url } = await serve(npm, ["run", script, "--", ...flags], { cwd: folder("vite") });
  const { stories } = exact;
  await visit(browser, `${url}?deterministic`, async (page, errors) => {
    for (const prompt of [BEGINNING, "anna was hungry"]) {
      await page.$eval("#prompt", (input) => input.select());
      await page.type("#prompt", prompt);
      const whole = prompt + (await stories.tellByFile(prompt));
      await page.waitForFunction(
        (whole) =>
          document.getElementById("text").textContent === whole && document.getElementById("facts").textContent,
        {},
        whole,
      );
      expect("the facts", await textOf(page, "#facts"), /^build simd, \d+ words\/s$/);
    }
    expect("errors of the page", errors.join(), "");
  });
  end(child);
}

export async function viteBuild(given) {
  const output = await run(given.npm, ["run", "build"], { cwd: given.folder("vite") });
  await vitePage(given, "preview");
  const [script] = /dist\/assets\/index-.*\.js.*/.exec(output) ?? ["no script"];
  return `type-checked; ${script.replace(/\s+/g, " ")}; the text of Node`;
}

export async function viteDev(given) {
  await vitePage(given, "dev");
  return "the text of Node";
}
