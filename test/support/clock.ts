// Clocks of processor time for tests of what measures speed, whose loads run for as long as the clock says.

const real = process.threadCpuUsage;

/** Microseconds that pass in a millisecond: 20 times as many as there are. */
const FASTER = 20_000;

/** `read` gives the microseconds of processor time until what this returns is disposed of. */
function setClock(read: () => number): Disposable {
  process.threadCpuUsage = () => ({ user: read(), system: 0 });
  return {
    [Symbol.dispose]() {
      process.threadCpuUsage = real;
    },
  };
}

/** A clock that is fast: a measurement of ten seconds takes half of one, with as many samples, of fewer runs. */
export function fasterClock(): Disposable {
  return setClock(() => FASTER * performance.now());
}

/** Flags by which a child that is Node has this clock. */
export const FASTER_CLOCK: readonly string[] = [
  "--import",
  `data:text/javascript,process.threadCpuUsage = () => ({ user: ${FASTER} * performance.now(), system: 0 });`,
];

/** A clock that doubles at each of some readings, by which any sample is long enough: each load runs a few times. */
export function doublingClock(readings: number = Number.POSITIVE_INFINITY): Disposable {
  let [time, count] = [2 ** 20, 0];
  return setClock(() => {
    if (count++ < readings) time *= 2;
    return time;
  });
}
