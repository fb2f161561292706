#!/usr/bin/env node
// The command line: `npx headwise info`.

import { readFileSync } from "node:fs";
import { plainText } from "../util/errors.ts";
import { UsageError } from "./args.ts";

const manifest = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")) as Record<
  string,
  string
>;

const HELP = `headwise ${manifest.version}: ${manifest.description}

headwise info                                  diagnose this engine: features, correctness, speed
headwise run MODEL                             run and time a layer of a safetensors or GGUF file
headwise bench                                 time layers, with each build and number of threads
headwise quantize IN OUT --weights FORMAT      write a safetensors file in fewer bits
headwise report MODEL SAMPLES --config CONFIG  measure how formats change the outputs of a layer
headwise COMMAND --help                        show the options of a command
headwise --version                             show the version`;

type Command = (args: string[], version: string) => Promise<void>;

/** Each is imported only when it runs. */
const COMMANDS: Readonly<Record<string, () => Promise<Command>>> = {
  info: async () => (await import("./info.ts")).info,
  run: async () => (await import("./run.ts")).run,
  bench: async () => (await import("./bench.ts")).bench,
  quantize: async () => (await import("./quantize.ts")).quantize,
  report: async () => (await import("./report.ts")).report,
};

async function main(args: string[]): Promise<void> {
  const [name = "", ...rest] = args;
  if (["--help", "-h"].includes(name)) return console.log(HELP);
  if (name === "--version") return console.log(manifest.version);
  if (!Object.hasOwn(COMMANDS, name))
    throw new UsageError(`expected a command, got ${name === "" ? "none" : JSON.stringify(name)}`);
  const command = await COMMANDS[name]?.();
  await command?.(rest, String(manifest.version));
}

try {
  await main(process.argv.slice(2));
} catch (error) {
  const usage = error instanceof UsageError;
  console.error(`headwise ${plainText((error as Error).message)}${usage ? " (see headwise --help)" : ""}`);
  process.exitCode = usage ? 2 : 1;
}
