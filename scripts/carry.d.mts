import type { Plugin } from "esbuild";
import type { CarriedBytes } from "../src/compile.ts";

export function carry(file: string): CarriedBytes;
export const carriesWasm: Plugin;
