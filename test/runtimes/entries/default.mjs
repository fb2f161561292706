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
import { runSuite } from "./suite.mjs";

console.log(
  JSON.stringify(
    await runSuite({
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
    }),
  ),
);
