import { execFileSync } from "node:child_process";
import { cpus } from "node:os";
import type { Measured, Spread } from "./measure.ts";

export interface Row extends Measured {
  readonly work: string;
  readonly flops: number;
}

/** A prompt of `tokens` tokens: what became of it. */
export interface Long {
  readonly peer: string;
  readonly tokens: number;
  readonly outcome: string;
}

/** What --json writes. */
export interface Result {
  readonly date: string;
  readonly commit: string | null;
  readonly machine: { readonly cpu: string; readonly cores: number };
  readonly engine: { readonly node: string; readonly v8: string };
  /** Of each peer, by its name. */
  readonly versions: Readonly<Record<string, string>>;
  readonly rows: readonly Row[];
  /** Milliseconds from process start to the first answer, by peer; an empty process is `none`. */
  readonly start?: Readonly<Record<string, Spread>>;
  /** Bytes that wasm memories held after loading, and grew by, by peer. */
  readonly memory?: Readonly<Record<string, { readonly before: number; readonly grown: number } | string>>;
  /** Gzipped bytes, by peer. */
  readonly sizes?: Readonly<Record<string, number>>;
  readonly long?: readonly Long[];
}

function commit(): string | null {
  try {
    return execFileSync("git", ["rev-parse", "HEAD"], {
      cwd: import.meta.dirname,
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
    }).trim();
  } catch {
    return null;
  }
}

export function describeMachine(): Pick<Result, "date" | "commit" | "machine" | "engine"> {
  return {
    date: new Date().toISOString(),
    commit: commit(),
    machine: { cpu: cpus()[0]?.model.trim() ?? "unknown", cores: cpus().length },
    engine: { node: process.versions.node, v8: process.versions.v8 },
  };
}

export const emptyResult: Result = { ...describeMachine(), versions: {}, rows: [] };
