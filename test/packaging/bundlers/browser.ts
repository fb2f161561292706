import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";

/** What the trial of project/trial.js gives. */
export interface Outcome {
  readonly bits: Readonly<Record<string, string>>;
  readonly ok: boolean;
  readonly build: string;
  readonly threads: number;
  readonly reason: string;
  readonly error?: string;
}

export interface Visit {
  readonly outcome: Outcome;
  /** Bytes of the scripts that the page loaded, each gzipped. */
  readonly scriptBytes: number;
  /** Errors of the page, of its console and of its requests. */
  readonly complaints: readonly string[];
}

/** The parts of puppeteer-core that are used. */
interface Puppeteer {
  launch(options: object): Promise<Browser>;
}
interface Browser {
  version(): Promise<string>;
  newPage(): Promise<Page>;
  close(): Promise<void>;
}
interface Page {
  on(event: "console", listener: (message: { type(): string; text(): string }) => void): void;
  on(event: "pageerror", listener: (error: Error) => void): void;
  on(event: "response", listener: (response: HttpResponse) => void): void;
  on(event: "requestfailed", listener: (request: { url(): string }) => void): void;
  goto(url: string, options: object): Promise<unknown>;
  waitForFunction(text: string, options: object): Promise<{ jsonValue(): Promise<unknown> }>;
  close(): Promise<void>;
}
interface HttpResponse {
  url(): string;
  status(): number;
  buffer(): Promise<Uint8Array>;
  request(): { resourceType(): string };
}

/** Chromium, through the project's puppeteer-core. */
export async function launchChromium(folder: string): Promise<Browser> {
  const path = createRequire(join(folder, "package.json")).resolve("puppeteer-core");
  const puppeteer: { default: Puppeteer } = await import(pathToFileURL(path).href);
  return puppeteer.default.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox"],
    timeout: 60_000,
  });
}

/** Opens the page and waits for its outcome. */
export async function visit(browser: Browser, url: string): Promise<Visit> {
  const page = await browser.newPage();
  const complaints: string[] = [];
  const scripts: Promise<number>[] = [];
  page.on("console", (message) => {
    if (message.type() === "error") complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("requestfailed", (request) => complaints.push(`${request.url()} failed`));
  page.on("response", (response) => {
    if (response.status() >= 400) complaints.push(`${response.url()} ${response.status()}`);
    else if (response.request().resourceType() === "script")
      // The script of a worker goes with it.
      scripts.push(
        response.buffer().then(
          (body) => gzipSync(body, { level: 9 }).length,
          () => 0,
        ),
      );
  });
  try {
    await page.goto(url, { timeout: 60_000 });
    const handle = await page.waitForFunction("globalThis.outcome", { timeout: 60_000, polling: 50 });
    const outcome = (await handle.jsonValue()) as Outcome;
    return { outcome, scriptBytes: (await Promise.all(scripts)).reduce((sum, bytes) => sum + bytes, 0), complaints };
  } catch (cause) {
    throw new Error(`${url} gave no outcome\n${complaints.join("\n")}`, { cause });
  } finally {
    await page.close();
  }
}
