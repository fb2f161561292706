#!/usr/bin/env node
// The command line: `npx headwise quantize in.safetensors out.safetensors --weights q4`.

import { readFileSync } from "node:fs";
import { UsageError } from "./commandline.ts";
import { plainText } from "./errors.ts";
import { quantize } from "./quantizecommand.ts";
import { report } from "./reportcommand.ts";

const manifest = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")) as Record<
  string,
  string
>;

const HELP = `headwise ${manifest.version}: ${manifest.description}

headwise quantize IN OUT --weights FORMAT      a safetensors file in fewer bits
headwise report MODEL SAMPLES --config CONFIG  what each format does to a layer's outputs
headwise COMMAND --help                        what a command takes
headwise --version`;

const COMMANDS: Readonly<Record<string, (args: string[]) => Promise<void>>> = { quantize, report };

async function main(args: string[]): Promise<void> {
  const [name = "", ...rest] = args;
  if (["--help", "-h"].includes(name)) return console.log(HELP);
  if (name === "--version") return console.log(manifest.version);
  if (!Object.hasOwn(COMMANDS, name))
    throw new UsageError(`expected a command, got ${name === "" ? "none" : JSON.stringify(name)}`);
  await COMMANDS[name]?.(rest);
}

try {
  await main(process.argv.slice(2));
} catch (error) {
  const usage = error instanceof UsageError;
  console.error(`headwise ${plainText((error as Error).message)}${usage ? " (headwise --help says more)" : ""}`);
  process.exitCode = usage ? 2 : 1;
}
