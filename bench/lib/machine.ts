import { execFileSync } from "node:child_process";
import { cpus, totalmem } from "node:os";

/** Machine, engine, source and date of a result. */
export interface Origin {
  readonly date: string;
  readonly commit: string | null;
  /** Whether files differ from the commit. */
  readonly changed: boolean;
  readonly machine: { readonly cpu: string; readonly cores: number; readonly memoryGiB: number; readonly os: string };
  readonly engine: { readonly node: string; readonly v8: string };
}

function git(...args: string[]): string | null {
  try {
    const stdio: ["ignore", "pipe", "ignore"] = ["ignore", "pipe", "ignore"];
    return execFileSync("git", args, { cwd: import.meta.dirname, encoding: "utf8", stdio }).trim();
  } catch {
    return null;
  }
}

export function originOf(): Origin {
  const { node, v8 } = process.versions;
  return {
    date: new Date().toISOString(),
    commit: git("rev-parse", "HEAD"),
    changed: git("status", "--porcelain") !== "",
    machine: {
      cpu: cpus()[0]?.model.trim() ?? "unknown",
      cores: cpus().length,
      memoryGiB: Math.round(totalmem() / 2 ** 30),
      os: `${process.platform} ${process.arch}`,
    },
    engine: { node, v8 },
  };
}

export function describeOrigin({ date, commit, changed, machine, engine }: Origin): string {
  const source = commit === null ? "no commit" : `${commit.slice(0, 12)}${changed ? " with changes" : ""}`;
  const { cpu, cores, os } = machine;
  return `${cpu}, ${cores} cores, ${os}, Node ${engine.node} (V8 ${engine.v8}), ${source}, ${date.slice(0, 10)}`;
}
