/** Milliseconds of the process's processor time, of all threads: others that run on the machine take none of it. In a page, of the clock. */
export function processorMs(): number {
  if (!("process" in globalThis)) return performance.now();
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}
