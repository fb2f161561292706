import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, globSync } from "node:fs";
import { createServer } from "node:net";
import type { Readable } from "node:stream";
import { within } from "./browser.ts";
import { createHome } from "./home.ts";

const DRIVER = "/usr/bin/WebKitWebDriver";
const SCREEN = "/usr/bin/Xvfb";
const START_MS = 60_000;
/** A session begins within 2 s on a busy machine, or not at all: see `begin`. */
const SESSION_MS = 20_000;
const SESSION_TRIES = 3;

/** MiniBrowser lies beside the library that it shows, in a folder named by machine and version. */
function findMiniBrowser(): string {
  const [found] = globSync("/usr/{lib,libexec}/{*/,}webkit*gtk-*/MiniBrowser");
  if (!found) throw new Error("MiniBrowser of WebKitGTK is missing: run test/browsers/install.sh");
  return found;
}

/** A screen that nobody sees, wide enough for any window of a test. It takes a free number and says which. */
function startScreen(): ChildProcess {
  const options = ["-displayfd", "3", "-screen", "0", "1600x1200x24", "-nolisten", "tcp"];
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

export type Call = (method: string, path: string, body?: object, ms?: number) => Promise<unknown>;

/** A client of the W3C WebDriver protocol: as much as it takes to open a page and to read from it. */
function connect(port: number): Call {
  return async (method, path, body, ms = START_MS) => {
    const response = await fetch(`http://127.0.0.1:${port}${path}`, {
      method,
      body: body && JSON.stringify(body),
      signal: AbortSignal.timeout(ms),
    }).catch((error) => {
      throw new Error(`${method} ${path}: no answer (${error})`, { cause: error });
    });
    const { value } = (await response.json()) as { value: unknown };
    if (response.ok) return value;
    const { error, message } = value as { error: string; message: string };
    throw new Error(`${method} ${path}: ${error}: ${message}`);
  };
}

export interface Session {
  readonly sessionId: string;
  readonly capabilities: { readonly browserVersion: string };
}

async function awaitDriver(call: Call): Promise<void> {
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

/** A browser with a driver of its own. */
export interface WebKitSession {
  readonly call: Call;
  readonly session: Session;
  end(): Promise<void>;
}

export interface WebKit {
  /** Starts a driver and a browser. */
  begin(): Promise<WebKitSession>;
  /** Ends all that was started. */
  close(): Promise<void>;
}

/**
 * WebKitGTK, on a screen of its own. `switches` are environment variables, such as those of JavaScriptCore; `options` are those of
 * MiniBrowser.
 */
export async function startWebKit(
  name: string,
  switches: Readonly<Record<string, string>>,
  options: readonly string[] = [],
): Promise<WebKit> {
  for (const file of [DRIVER, SCREEN])
    if (!existsSync(file)) throw new Error(`${file} is missing: run test/browsers/install.sh`);
  const binary = findMiniBrowser();
  const home = createHome();
  const children = new Set<ChildProcess>();
  const abandon = () => children.forEach(kill);
  process.prependOnceListener("exit", abandon);
  const close = async () => {
    process.off("exit", abandon);
    await Promise.all([...children].map(end));
    home.remove();
  };
  const screen = startScreen();
  children.add(screen);
  const display = await displayOf(screen).catch(async (error) => {
    await close();
    throw error;
  });
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
  // A driver's browser is of its group.
  const endDriver = async (driver: ChildProcess) => {
    await end(driver);
    children.delete(driver);
  };
  return {
    /**
     * A driver that is asked for a session right after another one ended starts no browser and does not answer about once in 50
     * times on a busy machine (measured with WebKitGTK 2.50.6): each session has a driver of its own. A new one did the same once
     * in some hundred times, before any page was open: then the next one is started.
     */
    async begin() {
      for (let tries = 1; ; tries++) {
        const port = await freePort();
        const driver = spawn(DRIVER, [`--port=${port}`], { env, stdio: "ignore", detached: true });
        children.add(driver);
        try {
          const call = connect(port);
          await awaitDriver(call);
          const args = ["--automation", ...options];
          const capabilities = { alwaysMatch: { "webkitgtk:browserOptions": { binary, args } } };
          const session = (await call("POST", "/session", { capabilities }, SESSION_MS)) as Session;
          return { call, session, end: () => endDriver(driver) };
        } catch (error) {
          await endDriver(driver);
          if (tries === SESSION_TRIES) throw error;
          console.log(`again  ${name}: ${error}; another driver is started`);
        }
      }
    },
    close,
  };
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
