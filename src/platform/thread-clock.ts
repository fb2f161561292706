interface Host {
  readonly process?: { threadCpuUsage?(): { readonly user: number; readonly system: number } };
}

/**
 * The milliseconds of processor time that this thread has taken, which other programs do not add to; undefined on hosts that do not
 * say it: Node does from 23.9 on.
 */
export function threadClock(): (() => number) | undefined {
  const { process } = globalThis as Host;
  if (typeof process?.threadCpuUsage !== "function") return undefined;
  return () => {
    const { user, system } = (process as Required<NonNullable<Host["process"]>>).threadCpuUsage();
    return (user + system) / 1000;
  };
}
