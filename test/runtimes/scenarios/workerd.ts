// Cloudflare's runtime, started in the two ways in which its users start it.

import { existsSync, readFileSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { run, start, stop, waitFor } from "../processes.ts";
import { tools, versionOf } from "../project.ts";
import type { Scenario } from "../scenario.ts";
import { freePort, heapBytes } from "./inspector.ts";
import { type Answer, expectModules } from "./modules.ts";

const SECONDS = 120;
/** What an isolate may hold. The runtime enforces it in production only, so it is asserted here. */
const LIMIT = 128e6;

/** Nothing is sent anywhere or written outside of the project, and nothing is asked. */
const quiet = (project: string) => ({
  CI: "1",
  NO_COLOR: "1",
  WRANGLER_SEND_METRICS: "false",
  XDG_CONFIG_HOME: join(project, ".config"),
});

const vitestPlugin: Scenario = {
  runtime: "workerd",
  scenario: "vitest plugin",
  async run(project) {
    for (const tool of ["vitest", "@cloudflare"]) symlinkSync(join(tools, tool), join(project, "node_modules", tool));
    const args = [join(tools, "vitest", "vitest.mjs"), "run", "--reporter=json", "--outputFile=vitest.json"];
    const failed = await run({ file: process.execPath, args, cwd: project, env: quiet(project) }, SECONDS).then(
      () => undefined,
      (error: Error) => error,
    );
    const results = join(project, "vitest.json");
    if (!existsSync(results)) throw failed ?? new Error("vitest wrote no results");
    const [file] = JSON.parse(readFileSync(results, "utf8")).testResults;
    if (failed)
      throw new Error(`${file.message} ${file.assertionResults[0]?.failureMessages.join()}`, { cause: failed });
    const report = expectModules(file.assertionResults[0].meta.answer);
    expectSmall(4 * report.memoryBytes);
    return { version: versionOf("workerd"), report };
  },
};

/** A Worker that `wrangler dev` bundles and serves; it runs the suite when it is asked for `path`. */
function wranglerDev(scenario: string, path: string): Scenario {
  return {
    runtime: "workerd",
    scenario: `wrangler dev${scenario}`,
    async run(project) {
      const inspector = await freePort();
      const options = { ip: "127.0.0.1", port: 0, "inspector-ip": "127.0.0.1", "inspector-port": inspector };
      const flags = Object.entries(options).flatMap(([name, value]) => [`--${name}`, String(value)]);
      const args = [join(tools, "wrangler", "bin", "wrangler.js"), "dev", ...flags];
      const wrangler = start({ file: process.execPath, args, cwd: project, env: quiet(project) });
      try {
        const [, url] = await waitFor(wrangler, /Ready on (http:\/\/127\.0\.0\.1:\d+)/, /Build failed/, SECONDS);
        const refused = await ask(`${url}/compile`);
        if (!/disallowed/.test(String(refused)))
          throw new Error(`expected the host to refuse to compile bytes, got ${refused}`);
        const report = expectModules((await ask(`${url}${path}`)) as Answer);
        const bytes = await heapBytes(inspector);
        expectSmall(bytes);
        return { version: versionOf("workerd"), report, found: `${(bytes / 1e6).toFixed(0)} MB` };
      } finally {
        stop(wrangler);
      }
    },
  };
}

async function ask(url: string): Promise<unknown> {
  const response = await fetch(url, { signal: AbortSignal.timeout(SECONDS * 1000) });
  const text = await response.text();
  if (!response.ok) throw new Error(`${url}: ${response.status} ${text.slice(0, 2000)}`);
  return JSON.parse(text);
}

/** Throws unless it fits a Worker. In the suite two engines live at a time, and two more for a moment. */
function expectSmall(bytes: number): void {
  if (!(bytes < LIMIT)) throw new Error(`expected less than ${LIMIT} bytes in an isolate, got ${bytes}`);
}

export const workerdScenarios: readonly Scenario[] = [
  vitestPlugin,
  wranglerDev("", "/default"),
  wranglerDev(", threads", "/threads"),
  wranglerDev(", core", "/core"),
];
