import { existsSync } from "node:fs";
import { awaitReport, type Browser, STATE, within } from "./browser.ts";
import { createHome } from "./home.ts";

// The part of puppeteer-core that is used here. Its own types are only there after `npm ci` in this folder.
interface Puppeteer {
  launch(options: object): Promise<PuppeteerBrowser>;
}

interface PuppeteerBrowser {
  version(): Promise<string>;
  newPage(): Promise<PuppeteerPage>;
  installExtension(folder: string): Promise<string>;
  close(): Promise<void>;
}

interface PuppeteerPage {
  goto(url: string, options: { waitUntil: "domcontentloaded"; timeout: number }): Promise<unknown>;
  evaluate(expression: string): Promise<unknown>;
  on(event: "console", listener: (message: { text(): string }) => void): void;
  on(event: "pageerror", listener: (error: unknown) => void): void;
  workers(): readonly unknown[];
  close(): Promise<void>;
}

const KINDS = {
  chromium: {
    name: "Chromium",
    path: "/usr/bin/chromium",
    // As root there is no sandbox to be had; /dev/shm is small in containers.
    options: {
      browser: "chrome",
      args: ["--no-sandbox", "--disable-dev-shm-usage"],
      pipe: true,
      enableExtensions: true,
    },
    extensions: "chrome-extension:",
  },
  firefox: {
    name: "Firefox",
    path: "/usr/bin/firefox-esr",
    options: { browser: "firefox" },
    extensions: undefined,
  },
};

const START_MS = 60_000;

export async function startPuppeteer(kind: keyof typeof KINDS): Promise<Browser> {
  const { name, path, options, extensions } = KINDS[kind];
  if (!existsSync(path)) throw new Error(`${path} is missing: run test/browsers/install.sh`);
  const library = "puppeteer-core";
  const puppeteer = ((await import(library)) as { default: Puppeteer }).default;
  const { env, remove } = createHome();
  const browser = await puppeteer.launch({ ...options, executablePath: path, env, headless: true, timeout: START_MS });
  const version = (await browser.version()).replace(/^[^/]*\//, "");
  return {
    name,
    version,
    async visit(url) {
      const page = await browser.newPage();
      try {
        const messages: string[] = [];
        page.on("console", (message) => messages.push(message.text()));
        page.on("pageerror", (error) => messages.push(String(error)));
        await page.goto(url, { waitUntil: "domcontentloaded", timeout: START_MS });
        const report = await awaitReport(
          url,
          () => page.evaluate(STATE) as Promise<string>,
          () => messages,
        );
        return { ...report, workers: page.workers().length };
      } finally {
        await within(page.close(), START_MS, `${name}: closing a page`);
      }
    },
    installExtension: extensions
      ? async (folder) => `${extensions}//${await browser.installExtension(folder)}/`
      : undefined,
    async close() {
      await within(browser.close(), START_MS, `${name}: closing it`);
      remove();
    },
  };
}
