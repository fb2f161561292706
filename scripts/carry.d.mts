import type { Plugin } from "esbuild";

export function carry(file: string): string;
export const carriesWasm: Plugin;
