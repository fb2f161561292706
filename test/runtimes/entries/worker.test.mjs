// The suite inside workerd, as the Cloudflare vitest plugin runs tests. What is found leaves it as the test's meta data.

import * as headwise from "headwise";
import { quantized } from "headwise/quantized";
import { expect, test } from "vitest";
import * as common from "./common.mjs";
import { compiled } from "./nobytes.mjs";
import { runSuite } from "./suite.mjs";

test("the suite", async ({ task }) => {
  const report = await runSuite({ headwise, ...common, load: { quantized } });
  task.meta.answer = { report, compiled: compiled() };
  expect(navigator.userAgent).toBe("Cloudflare-Workers");
});
