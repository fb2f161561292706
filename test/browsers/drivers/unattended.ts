import { execFileSync, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { awaitReport, type Browser } from "./browser.ts";
import { createHome } from "./home.ts";

const PATH = "/usr/bin/firefox-esr";

/**
 * Firefox as people start it, with nothing attached: each page gets a browser of its own and posts its state to a server
 * here (pages/harness.mjs). Under remote control `new Worker` in a worker does not return about once in 30 calls
 * (measured with Firefox 153, on pages with nothing else in them); without it, never in 2400.
 */
export async function startUnattended(): Promise<Browser> {
  if (!existsSync(PATH)) throw new Error(`${PATH} is missing: run test/browsers/install.sh`);
  const version = execFileSync(PATH, ["--version"], { encoding: "utf8" }).replace(/[^\d.]/g, "");
  let state = "null";
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const part of request.setEncoding("utf8")) body += part;
    state = body;
    response.end();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const reports = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  return {
    name: "Firefox unattended",
    version,
    async visit(url) {
      const { env, remove } = createHome();
      state = "null";
      const address = new URL(url);
      address.searchParams.set("reports", reports);
      const options = ["--headless", "--no-remote", "--profile", env.HOME as string, address.href];
      // A group of its own, so that its processes end with it.
      const firefox = spawn(PATH, options, { env, stdio: "ignore", detached: true });
      try {
        return await awaitReport(url, async () => state);
      } finally {
        process.kill(-(firefox.pid as number), "SIGKILL");
        remove();
      }
    },
    async close() {
      server.closeAllConnections();
      server.close();
    },
  };
}
