import { readdirSync, readlinkSync } from "node:fs";

/** The paths of the files that this process has open; none where the system does not list them. */
export function openFiles(): string[] {
  if (process.platform !== "linux") return [];
  return readdirSync("/proc/self/fd").flatMap((fd) => {
    try {
      return [readlinkSync(`/proc/self/fd/${fd}`)];
    } catch {
      // The listing itself was one of them.
      return [];
    }
  });
}
