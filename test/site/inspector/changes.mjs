// Heads that are changed, and number formats: their effect on the maps and on the next token.

import { loadKernels } from "../../../dist/index.js";
import { forwardWith } from "../../../dist/inspect.js";
import { createSession, gguf, loadModel, models } from "../../../dist/models.js";
import { quantized } from "../../../dist/quantized.js";
import { loadTokenizer } from "../../../dist/text.js";
import { expect } from "../../examples/given.mjs";
import { textOf } from "../../examples/pages.mjs";
import { digestIs, expected, FILE, open, press, TEXT, textIs, VIEW } from "./given.mjs";

const LEFT_OUT = "Your changes are left out here: this is the pass of the model as it is.";

export const scenarios = {
  "a head that is ablated, beside what that changes": (given) =>
    open(
      given,
      async (page) => {
        const [before, after] = [await expected(TEXT), await expected(TEXT, [{ at: "z", layer: 1, head: 6, set: 0 }])];
        const guess = () => textOf(page, "#guesses li .label");
        expect("the next token", await guess(), before.next);
        expect("nothing is said of changes", (await textOf(page, "#why")).includes(LEFT_OUT), false);
        await press(page, "Take this head away");
        await digestIs(page, after.digest);
        expect("the next token without the head", await guess(), after.next);
        expect("both probabilities", await textOf(page, "#guesses li .value"), /^[\d.]+ % → [\d.]+ %$/);
        await textIs(page, "#why p", LEFT_OUT);
        await press(page, "Difference");
        expect(
          "why nothing differs",
          await textOf(page, "#does"),
          /^The changes leave the weights of this head as they/,
        );
        await press(page, "Stages");
        await page.waitForFunction(
          (wanted) => document.querySelector(".stages > p").textContent.includes(wanted),
          {},
          LEFT_OUT,
        );
        // The other text has as many tokens; one that has not is refused with a sentence.
        await press(page, "Patch this head");
        await page.waitForFunction(() => location.hash.includes("edits=1.6%3D"));
        await page.$eval("#from", (field) => {
          field.value = "the cat";
          field.dispatchEvent(new Event("change"));
        });
        await page.waitForFunction(() =>
          /^Patching needs texts of the same length/.test(document.getElementById("status").textContent),
        );
        await press(page, "Restore");
        await digestIs(page, before.digest);
      },
      `${VIEW}&layer=1&head=6`,
    ),
  "a head that is scaled, by the keyboard": (given) =>
    open(
      given,
      async (page) => {
        const after = await expected(TEXT, [{ at: "z", layer: 1, head: 6, scale: 3 }]);
        await page.focus("#scale");
        await page.keyboard.press("End");
        await digestIs(page, after.digest);
        expect("the factor", await textOf(page, ".edits label"), "What layer 1, head 6 gives: times 3");
        return `digest ${after.digest}`;
      },
      `${VIEW}&layer=1&head=6`,
    ),
  "a head that is patched from another text": (given) =>
    open(
      given,
      async (page) => {
        const kernels = await loadKernels({ models, quantized, deterministic: true });
        const model = await loadModel(kernels, FILE, { gguf });
        const tokenizer = await loadTokenizer(FILE);
        const site = { at: "z", layer: 0, head: 7 };
        const other = tokenizer.encode("the cat sat on the mat because it was");
        const [rows] = forwardWith(createSession(model), other, { capture: [site] }).captured;
        kernels.release();
        await digestIs(
          page,
          (await expected("the dog slept on the rug because it was", [{ ...site, set: rows }])).digest,
        );
      },
      `#deterministic=yes&text=the+dog+slept+on+the+rug+because+it+was&from=the+cat+sat+on+the+mat+because+it+was&edits=0.7%3D`,
    ),
  "number formats, and the difference that they make": (given) =>
    open(
      given,
      async (page) => {
        const [plain, small] = [await expected(TEXT), await expected(TEXT, [], { weights: "q4", cache: "q8" })];
        await page.select("#weights", "q4");
        await page.select("#cache", "q8");
        await digestIs(page, small.digest);
        await press(page, "Difference");
        const difference = small.weight(1, 6, 16, 6) - plain.weight(1, 6, 16, 6);
        const value = `${difference > 0 ? "+" : ""}${difference.toFixed(3)}`.replace("-", "−");
        await textIs(page, "output.cell", `Layer 1, head 6, difference: “the” at 16 looks at “rug” at 6: ${value}`);
        await page.select("#weights", "stored");
        await page.select("#cache", "f32");
        await digestIs(page, plain.digest);
        return `digest ${small.digest}`;
      },
      `${VIEW}&layer=1&head=6&query=16&key=6`,
    ),
};
