#!/usr/bin/env node
// The command line: `npx headwise info`.

import { readFileSync } from "node:fs";
import { runCommand } from "./commands.ts";
import { watchOutput } from "./terminal.ts";

watchOutput();
await runCommand(process.argv.slice(2), JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")));
