import { expect, test } from "vitest";
import { startStream, time } from "../../../../src/tools/diagnostics/timing.ts";

test.each([1, 64, 65, 65_536, 65_600, 2 ** 28, 2 ** 28 + 1])("%i bytes are read within memory", (bytes) => {
  const load = startStream(bytes);
  expect(load.flops).toBe(bytes);
  expect(() => load.run()).not.toThrow();
});

test("reading takes longer the more bytes there are", () => {
  const [few, many] = [startStream(2 ** 20), startStream(2 ** 24)];
  for (const load of [few, many]) load.run();
  const least = (load: typeof few) => Math.min(...Array.from({ length: 5 }, () => time(load, 4)));
  expect(least(many)).toBeGreaterThan(2 * least(few));
});
