// The lessons: what their answers say is what the models do, and each view opens on what its question asks.

import { join } from "node:path";
import { loadKernels } from "../../../dist/index.js";
import { forwardWith, nextTokens } from "../../../dist/inspect.js";
import { createSession, gguf, loadModel, models } from "../../../dist/models.js";
import { quantized } from "../../../dist/quantized.js";
import { loadTokenizer } from "../../../dist/text.js";
import { expect } from "../../examples/given.mjs";
import { textOf, visit } from "../../examples/pages.mjs";
import { ready } from "../every-page.mjs";

const MODEL = join(import.meta.dirname, "../../../model");
const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)} %`;

/** A pass of a model without some heads: a weight, and the probability of a word. */
async function run(path, text, off = []) {
  const kernels = await loadKernels({ models, quantized, deterministic: true });
  const model = await loadModel(kernels, join(MODEL, path), { gguf });
  const tokenizer = await loadTokenizer(join(MODEL, path));
  const ids = tokenizer.encode(text);
  const layers = Array.from({ length: model.layers }, (_, layer) => layer);
  const edits = off.map(([layer, head]) => ({ at: "z", layer, head, set: 0 }));
  const { patterns, logits } = forwardWith(createSession(model), ids, { patterns: layers, edits });
  const [best] = nextTokens(logits, 1);
  kernels.release();
  return {
    weight: (layer, head, query, key) => patterns[layer].data[(head * ids.length + query) * ids.length + key],
    share: (word) => nextTokens(logits, [tokenizer.encode(word, { addSpecial: false })[0]])[0].probability,
    says: tokenizer.decode([best.id]).trim(),
  };
}

const heads = (layer, count) => Array.from({ length: count }, (_, head) => [layer, head]);

export const scenarios = {
  "the answers are what the models do": async (given) => {
    const repeated = "qz7 mfk qz7 mfk qz7 m";
    const stories = "stories/stories.gguf";
    const [question, keys] = ["the cat sat on the mat because it was soft. what was soft? the", "the keys in the box"];
    const [plain, without] = [await run("", repeated), await run("", repeated, heads(1, 4))];
    const [all, none] = [await run(stories, question), await run(stories, question, heads(1, 7))];
    const [plural, lost] = [await run(stories, keys), await run(stories, keys, [[0, 6]])];
    const [f, l] = [without.share("f"), without.share("l")];
    expect(`“f” without layer 1, ${f}`, f < 0.15, true);
    expect("what it says then", without.says, "l");
    expect("what it says without seven heads", none.says, "rug");
    expect("what it says of one key", (await run(stories, "the key in the box")).says, "was");
    const wanted = {
      previous: [percent(plain.weight(0, 0, 10, 9))],
      induction: [percent(plain.weight(1, 0, 20, 5)), percent(l)],
      "name-mover": [percent(all.share("mat"), 1), percent(none.share("mat"), 1), percent(none.share("rug"), 1)],
      agreement: [plural.weight(0, 6, 5, 2), plural.share("were"), lost.share("were")].map((each) => percent(each, 1)),
    };
    return visit(given.browser, `${given.url}lessons.html`, async (page, errors) => {
      await ready(page);
      for (const [id, numbers] of Object.entries(wanted)) {
        const said = await page.$$eval(`#${id} details b`, (list) => list.map((each) => each.textContent).join());
        expect(id, said, numbers.join());
      }
      expect("answers that are open", (await page.$$("details[open]")).length, 0);
      expect("errors of the page", errors.join("; "), "");
      return JSON.stringify(wanted);
    });
  },
  "each view opens on what its question asks": async (given) => {
    const links = await visit(given.browser, `${given.url}lessons.html`, async (page) => {
      await ready(page);
      return page.$$eval(".lesson a.button", (all) => all.map((each) => each.href));
    });
    const shown = ["Layer 0, head 0", "Layer 1, head 0", "Layer 1, head 6", "Layer 0, head 6"];
    for (const [i, title] of shown.entries())
      await visit(given.browser, links[i], async (page, errors) => {
        await ready(page);
        expect(links[i], await textOf(page, "#one-title"), title);
        expect("errors of the page", errors.join("; "), "");
      });
    return visit(given.browser, links[4], async (page) => {
      await ready(page);
      expect(
        "the cell",
        await textOf(page, "#cell"),
        "Learned, token 80 looks at token 60, 20 back: no vector for position 80.",
      );
    });
  },
};
