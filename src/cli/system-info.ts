import { arch, availableParallelism, cpus, release, totalmem, type } from "node:os";
import type { Surroundings } from "../diagnostics/doctor.ts";

/** Characters of a version that are shown: some are the hash of a commit. */
const LONGEST = 24;

/** What is known about the runtime and the machine. Some hosts refuse a part of it. */
export function findSurroundings(version: string): Surroundings {
  const asked = <T>(ask: () => T): T | undefined => {
    try {
      return ask();
    } catch {
      return undefined;
    }
  };
  return {
    version,
    engine: engineText(process.versions),
    system: asked(() => `${type()} ${release()} ${arch()}`),
    processor: asked(() => cpus()[0]?.model.trim()),
    processors: asked(availableParallelism),
    memory: asked(totalmem),
  };
}

/** Runtimes that emulate Node report versions of Node and V8 too, so their own are looked up first. */
function engineText(versions: Readonly<Record<string, string | undefined>>): string {
  const named = (names: Readonly<Record<string, string>>) => {
    const found = Object.keys(names).find((name) => versions[name] !== undefined);
    return found && `${names[found]} ${versions[found]?.slice(0, LONGEST)}`;
  };
  const runtime = named({ deno: "Deno", bun: "Bun", node: "Node" });
  const engine = named({ webkit: "WebKit", v8: "V8" });
  return [runtime, engine].filter(Boolean).join(", ");
}
