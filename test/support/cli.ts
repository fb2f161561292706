import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** The built command line. */
export const cli: string = fileURLToPath(new URL("../../dist/cli.js", import.meta.url));

export const manifest = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as {
  readonly version: string;
  readonly bin: Readonly<Record<string, string>>;
};

/** What a command printed, and how it ended. */
interface Ended {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs the built `headwise ...args`, in Node with `flags`, and with `env` in its environment. */
export function runCli(
  args: readonly string[],
  flags: readonly string[] = [],
  env: Readonly<Record<string, string>> = {},
): Ended {
  return spawnSync(process.execPath, [...flags, cli, ...args], { encoding: "utf8", env: { ...process.env, ...env } });
}
