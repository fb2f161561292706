import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A home folder for a browser that goes with it, or with this process. */
export function createHome(): { readonly env: NodeJS.ProcessEnv; remove(): void } {
  const home = mkdtempSync(join(tmpdir(), "headwise-home-"));
  const remove = () => {
    process.off("exit", remove);
    // A browser that was just killed may still be writing.
    rmSync(home, { recursive: true, force: true, maxRetries: 5 });
  };
  process.once("exit", remove);
  const env = {
    ...process.env,
    HOME: home,
    XDG_RUNTIME_DIR: home,
    XDG_CACHE_HOME: home,
    XDG_DATA_HOME: home,
    XDG_CONFIG_HOME: home,
  };
  return { env, remove };
}
