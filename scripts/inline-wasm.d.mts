import type { Plugin } from "esbuild";

export function inlineWasm(file: string): string;
export const inlineWasmPlugin: Plugin;
