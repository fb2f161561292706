// WebKitGTK by the WebDriver protocol, as a browser whose pages have those operations of puppeteer that the tests of the site use: the
// same scenarios run in all engines. Its driver sets no colour scheme, and its screenshots show the window only.

import { writeFile } from "node:fs/promises";
import { startWebKit } from "../browsers/drivers/webkit-session.ts";

/** What pages run first, by `first` of serveSite: the driver says nothing of errors, so the page keeps them. */
export const RECORDER = `globalThis.pageErrors = [];
addEventListener("error", ({ message, target }) => pageErrors.push(message ?? \`\${target.src ?? target.href} did not load\`), true);
addEventListener("unhandledrejection", ({ reason }) => pageErrors.push(\`unhandled: \${reason}\`));
const { error } = console;
console.error = (...words) => {
  pageErrors.push(words.join(" "));
  error(...words);
};
`;

const ELEMENT = "element-6066-11e4-a52e-4f735466cecf";
const KEYS = {
  ...{ Backspace: "\uE003", Tab: "\uE004", Enter: "\uE007", Escape: "\uE00C", End: "\uE010", Home: "\uE011" },
  ...{ ArrowLeft: "\uE012", ArrowUp: "\uE013", ArrowRight: "\uE014", ArrowDown: "\uE015" },
};
const POLL_MS = 30;
/** What a command may take: as much as a scenario. */
const COMMAND_MS = 120_000;

export async function launchWebKit() {
  const webkit = await startWebKit("WebKitGTK", {}, ["--javascript-can-open-windows-automatically=true"]);
  try {
    const { call, session } = await webkit.begin();
    const send = (method, path, body) => call(method, `/session/${session.sessionId}${path}`, body, COMMAND_MS);
    await send("POST", "/timeouts", { script: COMMAND_MS });
    return createBrowser(send, webkit);
  } catch (error) {
    await webkit.close();
    throw error;
  }
}

function createBrowser(call, webkit) {
  let current;
  /** The window that pages are opened from. */
  let root;
  /** Sends a command to a window. */
  const send = async (handle, method, path, body) => {
    if (current !== handle) await call("POST", "/window", { handle });
    current = handle;
    return call(method, path, body);
  };
  return {
    async newPage() {
      root ??= await call("GET", "/window");
      const before = new Set(await call("GET", "/window/handles"));
      // A window that a script opens has no toolbar, which would be at least 447 pixels wide.
      const script = 'window.open("about:blank", "_blank", "popup,width=1024,height=900")';
      await send(root, "POST", "/execute/sync", { script, args: [] });
      const handle = (await call("GET", "/window/handles")).find((each) => !before.has(each));
      if (!handle) throw new Error("WebKitGTK opened no window");
      return createPage((method, path, body) => send(handle, method, path, body));
    },
    close: () => webkit.close(),
  };
}

function createPage(send) {
  let timeout = 30_000;
  /** Where the page was when a script of the tests ran last. */
  let url = "about:blank";
  const listeners = [];

  /** Calls a function of the page with JSON values and elements; `look` is its text. */
  const run = async (look, args) => {
    const script = `const done = arguments[arguments.length - 1];
      const end = (found) => done({ ...found, errors: (globalThis.pageErrors ?? []).splice(0), href: location.href });
      Promise.resolve().then(() => (${look})(...[...arguments].slice(0, -1))).then(
        (value) => end({ value }),
        (error) => end({ thrown: String(error?.message ?? error) }),
      );`;
    const { value, thrown, errors, href } = await send("POST", "/execute/async", { script, args });
    url = href;
    for (const error of errors) for (const listener of listeners) listener(new Error(error));
    if (thrown !== undefined) throw new Error(thrown);
    return value ?? undefined;
  };
  const find = async (selector) => {
    const found = await send("POST", "/element", { using: "css selector", value: selector });
    return createElement(found);
  };
  const createElement = (reference) => ({
    toJSON: () => reference,
    evaluate: (look, ...args) => run(String(look), [reference, ...args]),
    $eval: (selector, look, ...args) =>
      run(`(root, selector, ...args) => (${look})(root.querySelector(selector), ...args)`, [
        reference,
        selector,
        ...args,
      ]),
    click: () => send("POST", `/element/${reference[ELEMENT]}/click`, {}),
    /** The driver adds files to those that were chosen before: these are taken away. */
    async uploadFile(...files) {
      await run(`(field) => { field.value = ""; }`, [reference]);
      await send("POST", `/element/${reference[ELEMENT]}/value`, { text: files.join("\n") });
    },
    scrollIntoView: () => run(`(element) => element.scrollIntoView({ block: "center" })`, [reference]),
    boundingBox: () =>
      run(
        `(element) => {
          const { x, y, width, height } = element.getBoundingClientRect();
          return { x, y, width, height };
        }`,
        [reference],
      ),
  });
  const sendKeys = (keys, delay = 0) => {
    const pause = delay > 0 ? [{ type: "pause", duration: delay }] : [];
    const actions = keys.flatMap((value) => [{ type: "keyDown", value }, { type: "keyUp", value }, ...pause]);
    return send("POST", "/actions", { actions: [{ type: "key", id: "keyboard", actions }] });
  };

  const page = {
    setDefaultTimeout(ms) {
      timeout = ms;
    },
    /** Errors of the page; those of the console among them. The other events do not occur. */
    on: (event, listener) => void (event === "pageerror" && listeners.push(listener)),
    goto: (url) => send("POST", "/url", { url }),
    reload: () => send("POST", "/refresh", {}),
    url: () => url,
    title: () => send("GET", "/title"),
    close: () => send("DELETE", "/window"),
    evaluate: (look, ...args) => run(typeof look === "string" ? `() => (${look})` : String(look), args),
    $: find,
    async $$(selector) {
      const all = await send("POST", "/elements", { using: "css selector", value: selector });
      return all.map(createElement);
    },
    $eval: (selector, look, ...args) =>
      run(
        `(selector, ...args) => {
          const element = document.querySelector(selector);
          if (!element) throw new Error("no element " + selector);
          return (${look})(element, ...args);
        }`,
        [selector, ...args],
      ),
    $$eval: (selector, look, ...args) =>
      run(`(selector, ...args) => (${look})([...document.querySelectorAll(selector)], ...args)`, [selector, ...args]),
    async waitForFunction(look, options = {}, ...args) {
      const end = Date.now() + (options.timeout ?? timeout);
      for (;;) {
        // While the page is left for another one, its scripts have no end.
        const found = await page.evaluate(look, ...args).catch((error) => ({ error }));
        if (found && !found.error) return;
        if (Date.now() > end)
          throw found?.error ?? new Error(`no end within ${options.timeout ?? timeout} ms: ${look}`);
        await new Promise((done) => setTimeout(done, POLL_MS));
      }
    },
    waitForSelector: (selector, options) =>
      page.waitForFunction((wanted) => document.querySelector(wanted) !== null, options, selector),
    focus: (selector) => page.$eval(selector, (element) => element.focus()),
    click: async (selector) => (await find(selector)).click(),
    select: (selector, value) =>
      page.$eval(
        selector,
        (element, chosen) => {
          element.value = chosen;
          for (const kind of ["input", "change"]) element.dispatchEvent(new Event(kind, { bubbles: true }));
        },
        value,
      ),
    async type(selector, text, { delay } = {}) {
      await page.focus(selector);
      await sendKeys([...text], delay);
    },
    keyboard: {
      press: (key) => sendKeys([KEYS[key] ?? key]),
      type: (text, { delay } = {}) => sendKeys([...text], delay),
    },
    mouse: {
      move: (x, y) =>
        send("POST", "/actions", {
          actions: [
            {
              type: "pointer",
              id: "mouse",
              actions: [{ type: "pointerMove", x: Math.round(x), y: Math.round(y), duration: 0 }],
            },
          ],
        }),
    },
    /** The driver answers before the page has its new size. */
    async setViewport({ width, height }) {
      await send("POST", "/window/rect", { width, height });
      const hasSize = (...size) => matchMedia(`(width: ${size[0]}px) and (height: ${size[1]}px)`).matches;
      await page.waitForFunction(hasSize, {}, width, height);
    },
    async screenshot({ path }) {
      await writeFile(path, Buffer.from(await send("GET", "/screenshot"), "base64"));
    },
  };
  return page;
}
