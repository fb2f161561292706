// The commands of the command line, and how one is chosen and fails.

import { FileError, suggestionOf, UsageError } from "./args.ts";
import { plainText, print } from "./terminal.ts";

/** What the command line says of its package. */
interface Manifest {
  readonly version: string;
  readonly description: string;
}

const helpOf = ({ version, description }: Manifest) => `headwise ${version}: ${description}

headwise info                              diagnose this engine: features, correctness, speed
headwise run MODEL                         run and time a layer of a safetensors or GGUF file
headwise run FOLDER --ids LIST             run a whole decoder: the logits of the next token
headwise generate SOURCE PROMPT            open a model, and write text behind a prompt
headwise chat SOURCE                       a conversation in the terminal
headwise embed SOURCE TEXT...              print vectors of texts, and their cosines
headwise inspect MODEL TEXT                show what each head of a decoder does, and where it looks
headwise bench                             time layers, with each build and number of threads
headwise bench FOLDER                      time a whole decoder in each format of weights
headwise quantize IN OUT --weights FORMAT  write a safetensors file in fewer bits
headwise report MODEL SAMPLES              measure how formats change the outputs of a layer
headwise configure OPTIONS                 choose a decoder for a budget, or say what a model costs
headwise cache                             list, check or remove what is kept of URLs
headwise COMMAND --help                    show the options of a command
headwise --version                         show the version`;

type Command = (args: string[], version: string) => Promise<void>;

/** Each is imported only when it runs. */
const COMMANDS: Readonly<Record<string, () => Promise<Command>>> = {
  info: async () => (await import("./info.ts")).info,
  run: async () => (await import("./run.ts")).run,
  generate: async () => (await import("./generate.ts")).generate,
  chat: async () => (await import("./chat.ts")).chat,
  embed: async () => (await import("./embed.ts")).embed,
  inspect: async () => (await import("./inspect.ts")).inspect,
  bench: async () => (await import("./bench.ts")).bench,
  quantize: async () => (await import("./quantize.ts")).quantize,
  report: async () => (await import("./report.ts")).report,
  cache: async () => (await import("./cache.ts")).cache,
  configure: async () => (await import("./configure.ts")).configure,
};

const isCommand = (name: string) => Object.hasOwn(COMMANDS, name);

async function start([name, ...rest]: string[], manifest: Manifest): Promise<void> {
  if (name === undefined) {
    // Nothing was asked for: the help is an answer, but not success.
    console.error(helpOf(manifest));
    process.exitCode = 2;
    return;
  }
  if (["help", "--help", "-h"].includes(name)) {
    const [about] = rest;
    return about !== undefined && isCommand(about) ? start([about, "--help"], manifest) : print(helpOf(manifest));
  }
  if (["--version", "-v"].includes(name)) return print(manifest.version);
  if (!isCommand(name)) {
    const names = Object.keys(COMMANDS);
    const suggestion = suggestionOf(name, names);
    throw new UsageError(`expected ${names.join(", ")}, got ${JSON.stringify(name)}${suggestion}`);
  }
  const command = await COMMANDS[name]?.();
  await command?.(rest, manifest.version);
}

/** Prints an error as one line, for some with lines of details, and chooses the exit code. */
function fail(error: unknown, name = ""): void {
  const usage = error instanceof UsageError;
  const text = plainText(error instanceof Error ? error.message : String(error));
  console.error(`headwise ${text}${usage ? ` (see headwise ${isCommand(name) ? `${name} ` : ""}--help)` : ""}`);
  if (usage) for (const line of error.details) console.error(plainText(line));
  const badFile = error instanceof FileError || (error as { code?: unknown } | undefined)?.code === "BAD_FILE";
  process.exitCode = usage || badFile ? 2 : 1;
}

/** Runs `headwise ...args`: what it prints, an error too, and `process.exitCode` are its result. */
export async function runCommand(args: string[], manifest: Manifest): Promise<void> {
  try {
    await start(args, manifest);
  } catch (error) {
    fail(error, args[0]);
  }
}
