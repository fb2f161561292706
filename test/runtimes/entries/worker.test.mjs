// The suite inside workerd, as the Cloudflare vitest plugin runs tests. What is found leaves it as the test's meta data.

import * as headwise from "headwise";
import * as configure from "headwise/configure";
import * as encoders from "headwise/encoders";
import * as heads from "headwise/heads";
import * as inspect from "headwise/inspect";
import * as latents from "headwise/latent";
import * as models from "headwise/models";
import { quantized } from "headwise/quantized";
import * as sessions from "headwise/sessions";
import * as text from "headwise/text";
import * as weights from "headwise/weights";
import { expect, test } from "vitest";
import { compiled } from "./nobytes.mjs";
import { runSuite } from "./suite.mjs";

test("the suite", async ({ task }) => {
  const report = await runSuite({
    headwise,
    weights,
    heads,
    sessions,
    latents,
    models,
    encoders,
    text,
    inspect,
    configure,
    load: { quantized },
  });
  task.meta.answer = { report, compiled: compiled() };
  expect(navigator.userAgent).toBe("Cloudflare-Workers");
});
