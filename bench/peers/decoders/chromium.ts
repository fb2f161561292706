// A page of its own in Chromium, and the server that it comes from.

import { createReadStream, existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import puppeteer from "puppeteer-core";
import type { Report, Task } from "./task.ts";
import { wllamaWasm } from "./variants.ts";
import { WASM } from "./wllama-paths.ts";

const CHROMIUM = "/usr/bin/chromium";
const MODEL = "/model";

/** Why there is no page. */
export const chromiumMissing = existsSync(CHROMIUM) ? undefined : `${CHROMIUM} is missing`;

interface Page {
  /** Files: the script of the page, and the loops. */
  readonly script: string;
  readonly loops: string;
  readonly task: Task;
}

export async function runInPage({ script, loops, task }: Page): Promise<Report> {
  const files: Readonly<Record<string, string>> = {
    ...{ "/page.mjs": script, "/loops.wasm": loops },
    ...{ [WASM]: wllamaWasm(), [MODEL]: task.request.source },
  };
  const served: Task = { ...task, request: { ...task.request, source: MODEL } };
  const texts: Readonly<Record<string, readonly [type: string, text: string]>> = {
    "/": ["text/html", '<!doctype html><script type="module" src="/page.mjs"></script>'],
    "/task": ["application/json", JSON.stringify(served)],
  };
  let logits: Float32Array = new Float32Array();
  let answered: (text: string) => void;
  const answer = new Promise<string>((resolve) => {
    answered = resolve;
  });
  const server = createServer(async (request, response) => {
    const path = request.url ?? "/";
    const [type, text] = texts[path] ?? [];
    const file = files[path];
    if (request.method === "POST") {
      const body = await bodyOf(request);
      response.end();
      if (path === "/logits") logits = new Float32Array(new Uint8Array(body).buffer);
      else answered(body.toString());
    } else if (type !== undefined) {
      response.writeHead(200, { "content-type": type }).end(text);
    } else if (file !== undefined) {
      const head = { "content-type": typeOf(path), "content-length": statSync(file).size };
      createReadStream(file).pipe(response.writeHead(200, head));
    } else {
      response.writeHead(404).end();
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const browser = await puppeteer.launch({
    executablePath: CHROMIUM,
    // As root there is no sandbox to be had; /dev/shm is small in containers.
    args: ["--no-sandbox", "--disable-dev-shm-usage"],
    pipe: true,
    // It would close the browser and let this process go on; it ends with this process anyway.
    ...{ handleSIGINT: false, handleSIGTERM: false, handleSIGHUP: false },
  });
  try {
    const page = await browser.newPage();
    for (const event of ["pageerror", "error"] as const)
      page.on(event, (error) => answered(JSON.stringify({ error: String(error) })));
    await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
    const report = JSON.parse(await answer) as Pick<Report, "answer"> & { readonly error?: string };
    if (report.error !== undefined) throw new Error(report.error);
    return { answer: report.answer, logits, heldBytes: largestRenderer(browser.process()!.pid!) };
  } finally {
    await browser.close();
    server.closeAllConnections();
    server.close();
  }
}

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

function typeOf(path: string): string {
  if (path.endsWith(".mjs")) return "text/javascript";
  return path.endsWith(".wasm") ? "application/wasm" : "application/octet-stream";
}

/** The most memory that a renderer of a browser ever had: that of the page, which is the largest. */
function largestRenderer(browser: number): number {
  const parents = new Map<number, number>();
  const held = new Map<number, number>();
  for (const entry of readdirSync("/proc"))
    if (/^\d+$/.test(entry))
      try {
        const status = readFileSync(`/proc/${entry}/status`, "utf8");
        parents.set(Number(entry), Number(/PPid:\s*(\d+)/.exec(status)?.[1]));
        if (readFileSync(`/proc/${entry}/cmdline`, "utf8").includes("--type=renderer"))
          held.set(Number(entry), 1024 * Number(/VmHWM:\s*(\d+) kB/.exec(status)?.[1]));
      } catch {
        // It has ended.
      }
  const isOwn = (process: number | undefined): boolean =>
    process === browser || (process !== undefined && isOwn(parents.get(process)));
  return Math.max(...[...held].filter(([process]) => isOwn(process)).map(([, bytes]) => bytes));
}
