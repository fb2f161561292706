// How each bundler is configured: to bundle page.js (or the page that loads it), and nothing about the package.

import { readdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { run, serve } from "../children.ts";
import { serveFolder } from "./server.ts";

/** What answers with the page. */
export interface Served {
  readonly url: string;
  /** Whether it comes with the headers that shared memory needs. */
  readonly isolated: boolean;
  /** Not a bundle, but files as they are asked for: their size says nothing. */
  readonly development?: boolean;
  /** A path that answers with the trial's outcome as JSON. */
  readonly route?: string;
  stop(): void;
}

export interface Bundler {
  readonly name: string;
  /** The package whose version is shown. */
  readonly tool: string;
  bundle(folder: string): Promise<Served>;
}

/** A command that bundles into a folder, which is then served as files. */
function command(name: string, tool: string, program: string, args: (out: string) => readonly string[]): Bundler {
  return {
    name,
    tool,
    bundle: async (folder) => {
      const out = join("out", name);
      await run(join("node_modules", program), args(out), {
        folder,
        limit: 240,
        // Deno has a list of authorities of its own, on which that of a proxy that npm trusts is not.
        env: { DENO_DIR: join(folder, ".deno"), DENO_TLS_CA_STORE: "mozilla,system" },
      });
      addPage(join(folder, out));
      return { ...(await serveFolder(join(folder, out))), isolated: true };
    },
  };
}

/** A bundler of scripts leaves the page to its user. */
function addPage(folder: string): void {
  const files = readdirSync(folder);
  if (files.includes("index.html")) return;
  const scripts = files
    .filter((file) => file.endsWith(".js"))
    .map((file) => `<script type="module" src="${file}"></script>`);
  writeFileSync(join(folder, "index.html"), `<!doctype html><link rel="icon" href="data:," />${scripts.join("")}`);
}

async function freePort(): Promise<string> {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return String(typeof address === "object" ? address?.port : 0);
}

export const BUNDLERS: readonly Bundler[] = [
  command("vite", "vite", ".bin/vite", (out) => ["build", "--outDir", out]),
  {
    name: "vite dev",
    tool: "vite",
    bundle: async (folder) => {
      const args = ["--host", "127.0.0.1", "--port", await freePort()];
      return {
        ...(await serve("node_modules/.bin/vite", args, { folder, limit: 60 })),
        isolated: false,
        development: true,
      };
    },
  },
  command("webpack", "webpack", ".bin/webpack", (out) => ["./page.js", "--mode", "production", "-o", out]),
  command("rollup", "rollup", ".bin/rollup", (out) => [
    ...["page.js", "--plugin", "@rollup/plugin-node-resolve"],
    ...["--format", "es", "--dir", out],
  ]),
  command("esbuild", "esbuild", ".bin/esbuild", (out) => [
    ...["page.js", "--bundle", "--minify", "--format=esm"],
    `--outfile=${out}/page.js`,
  ]),
  command("parcel", "parcel", ".bin/parcel", (out) => ["build", "index.html", "--no-cache", "--dist-dir", out]),
  // Its starter in .bin wants an install script to have run.
  command("bun", "bun", "@oven/bun-linux-x64/bin/bun", (out) => ["build", "page.js", "--minify", "--outdir", out]),
  command("deno", "deno", ".bin/deno", (out) => [
    ...["bundle", "--platform=browser", "--minify"],
    ...["--output", `${out}/page.js`, "page.js"],
  ]),
  {
    name: "next",
    tool: "next",
    bundle: async (folder) => {
      const child = { folder, limit: 300, env: { NEXT_TELEMETRY_DISABLED: "1" } };
      await run("node_modules/.bin/next", ["build"], child);
      const args = ["start", "--hostname", "127.0.0.1", "--port", await freePort()];
      const server = await serve("node_modules/.bin/next", args, { ...child, limit: 60 });
      return { ...server, isolated: false, route: "/edge" };
    },
  },
];
