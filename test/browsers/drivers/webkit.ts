import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, globSync } from "node:fs";
import { createServer } from "node:net";
import type { Readable } from "node:stream";
import { awaitReport, type Browser, STATE, within } from "./browser.ts";
import { createHome } from "./home.ts";

const DRIVER = "/usr/bin/WebKitWebDriver";
const SCREEN = "/usr/bin/Xvfb";
const START_MS = 60_000;

/** MiniBrowser lies beside the library that it shows, in a folder named by machine and version. */
function findMiniBrowser(): string {
  const [found] = globSync("/usr/{lib,libexec}/{*/,}webkit*gtk-*/MiniBrowser");
  if (!found) throw new Error("MiniBrowser of WebKitGTK is missing: run test/browsers/install.sh");
  return found;
}

/** A screen that nobody sees. It takes a free number and says which. */
function startScreen(): ChildProcess {
  const options = ["-displayfd", "3", "-screen", "0", "1024x768x24", "-nolisten", "tcp"];
  return spawn(SCREEN, options, { stdio: ["ignore", "ignore", "ignore", "pipe"] });
}

async function displayOf(screen: ChildProcess): Promise<string> {
  const number = new Promise((resolve, reject) => {
    screen.once("error", reject);
    screen.once("exit", (code) => reject(new Error(`${SCREEN} ended with code ${code}`)));
    (screen.stdio[3] as Readable).once("data", resolve);
  });
  return `:${String(await within(number, START_MS, SCREEN)).trim()}`;
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.on("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });
}

/** A client of the W3C WebDriver protocol: as much as it takes to open a page and to read from it. */
function connect(port: number): (method: string, path: string, body?: object) => Promise<unknown> {
  return async (method, path, body) => {
    const response = await fetch(`http://127.0.0.1:${port}${path}`, {
      method,
      body: body && JSON.stringify(body),
      signal: AbortSignal.timeout(START_MS),
    });
    const { value } = (await response.json()) as { value: unknown };
    if (response.ok) return value;
    const { error, message } = value as { error: string; message: string };
    throw new Error(`${method} ${path}: ${error}: ${message}`);
  };
}

async function awaitDriver(call: ReturnType<typeof connect>): Promise<void> {
  const end = Date.now() + START_MS;
  for (;;) {
    try {
      await call("GET", "/status");
      return;
    } catch (error) {
      if (Date.now() > end) throw new Error(`${DRIVER}: no answer within ${START_MS / 1000} s`, { cause: error });
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

/** WebKitGTK, on a screen of its own. `switches` are environment variables, such as those of JavaScriptCore. */
export async function startWebKit(name: string, switches: Readonly<Record<string, string>>): Promise<Browser> {
  for (const file of [DRIVER, SCREEN])
    if (!existsSync(file)) throw new Error(`${file} is missing: run test/browsers/install.sh`);
  const binary = findMiniBrowser();
  const home = createHome();
  const children: ChildProcess[] = [];
  const abandon = () => children.forEach(kill);
  process.prependOnceListener("exit", abandon);
  const close = async () => {
    process.off("exit", abandon);
    await Promise.all(children.map(end));
    home.remove();
  };
  try {
    const screen = startScreen();
    children.push(screen);
    const display = await displayOf(screen);
    const port = await freePort();
    const env = {
      ...home.env,
      ...switches,
      DISPLAY: display,
      GDK_BACKEND: "x11",
      LIBGL_ALWAYS_SOFTWARE: "1",
      NO_AT_BRIDGE: "1",
      // Its sandbox needs user namespaces, which root in a container has not.
      WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS: "1",
    };
    children.push(
      spawn(DRIVER, [`--port=${port}`, "--replace-on-new-session"], { env, stdio: "ignore", detached: true }),
    );
    const call = connect(port);
    await awaitDriver(call);
    const open = async () =>
      (await call("POST", "/session", {
        capabilities: { alwaysMatch: { "webkitgtk:browserOptions": { binary, args: ["--automation"] } } },
      })) as { sessionId: string; capabilities: { browserVersion: string } };
    const first = await open();
    await call("DELETE", `/session/${first.sessionId}`);
    return {
      name,
      version: first.capabilities.browserVersion,
      async visit(url) {
        const { sessionId } = await open();
        const path = `/session/${sessionId}`;
        try {
          await call("POST", `${path}/url`, { url });
          const script = { script: `return ${STATE}`, args: [] };
          return await awaitReport(url, () => call("POST", `${path}/execute/sync`, script) as Promise<string>);
        } finally {
          // Where that fails, the next session replaces this one.
          await call("DELETE", path).catch(() => {});
        }
      },
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Kills a child, with what it started where it leads a group. */
function kill({ pid, exitCode, signalCode }: ChildProcess): void {
  if (pid === undefined || exitCode !== null || signalCode !== null) return;
  for (const target of [-pid, pid]) {
    try {
      process.kill(target, "SIGKILL");
    } catch {
      // The screen leads no group.
    }
  }
}

async function end(child: ChildProcess): Promise<void> {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once("exit", resolve));
  kill(child);
  await within(ended, START_MS, `${child.spawnfile}: ending it`);
}
