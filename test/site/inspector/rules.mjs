// Layers under other rules: their weights and what they change, computed here in float64 from the stages of the layer.

import { loadKernels } from "../../../dist/index.js";
import { forwardWith, traceAttention } from "../../../dist/inspect.js";
import { createSession, gguf, loadModel, models } from "../../../dist/models.js";
import { quantized } from "../../../dist/quantized.js";
import { loadTokenizer } from "../../../dist/text.js";
import { expect } from "../../examples/given.mjs";
import { textOf } from "../../examples/pages.mjs";
import { digestIs, expected, FILE, open, press, TEXT, textIs, VIEW } from "./given.mjs";

const LAYER = 1;

/** Weights of all heads and the likeliest next token, where `isSeen(query, key)`, with `group` heads of keys and values as one. */
async function ruled(isSeen, group = 1) {
  const kernels = await loadKernels({ models, quantized, deterministic: true });
  const model = await loadModel(kernels, FILE, { gguf });
  const tokenizer = await loadTokenizer(FILE);
  const ids = tokenizer.encode(TEXT);
  const n = ids.length;
  const { captured } = forwardWith(createSession(model), ids, { capture: [{ at: "attnIn", layer: LAYER }] });
  const stages = traceAttention({ model, layer: LAYER }, captured[0].data);
  const of = (name) => stages.find((stage) => stage.name === name).tensors;
  const { q, k } = of("rotate");
  const { v } = of("split");
  const [heads, , dim] = q.shape;
  const perKey = heads / k.shape[0];
  const mean = ({ data }, head, token, c) => {
    const first = Math.floor(head / perKey / group) * group;
    let sum = 0;
    for (let each = first; each < first + group; each++) sum += data[(each * n + token) * dim + c];
    return sum / group;
  };
  const weights = new Float64Array(heads * n * n);
  const z = new Float32Array(n * heads * dim);
  for (let head = 0; head < heads; head++)
    for (let i = 0; i < n; i++) {
      const row = weights.subarray((head * n + i) * n, (head * n + i + 1) * n);
      for (let j = 0; j < n; j++) {
        let score = 0;
        for (let c = 0; c < dim; c++) score += q.data[(head * n + i) * dim + c] * mean(k, head, j, c);
        row[j] = isSeen(i, j) ? Math.exp(score / Math.sqrt(dim)) : 0;
      }
      const sum = row.reduce((a, b) => a + b);
      for (let j = 0; j < n; j++) row[j] /= sum;
      for (let c = 0; c < dim; c++)
        z[(i * heads + head) * dim + c] = row.reduce((total, weight, j) => total + weight * mean(v, head, j, c), 0);
    }
  const edits = [{ at: "z", layer: LAYER, set: { data: z, shape: [n, heads * dim] } }];
  const { logits } = forwardWith(createSession(model), ids, { edits });
  const shares = logits.map((logit) => Math.exp(logit));
  const best = shares.indexOf(shares.reduce((a, b) => Math.max(a, b)));
  const share = (100 * shares[best]) / shares.reduce((a, b) => a + b);
  kernels.release();
  return {
    weight: (head, query, key) => weights[(head * n + query) * n + key],
    next: { word: tokenizer.decode([best]), share: `${share.toFixed(1)} %` },
  };
}

/** The page with a rule in its address has these weights and this next token, and says what the rule changes. */
const rule =
  (address, says, isSeen, group, cells = [[6, 16, 6]]) =>
  async (given) => {
    const wanted = await ruled(isSeen, group);
    const plain = await expected(TEXT);
    for (const [head, query, key] of cells)
      await open(
        given,
        async (page) => {
          const [own, changed] = [plain.weight(LAYER, head, query, key), wanted.weight(head, query, key)];
          const at = `Layer 1, head ${head}: “${plain.words[query]}” at ${query} looks at “${plain.words[key]}” at ${key}:`;
          await textIs(page, "output.cell", `${at} ${changed.toFixed(3)}`);
          expect("a weight that the rule changes", changed.toFixed(3) !== own.toFixed(3), true);
          await press(page, "Difference");
          await page.waitForFunction(() => location.hash.includes("view=difference"));
          const difference = `${changed > own ? "+" : ""}${(changed - own).toFixed(3)}`.replace("-", "−");
          await textIs(page, "output.cell", `${at} ${difference}`.replace(": ", ", difference: "));
          const shown = await page.$$eval("#guesses li", (all) =>
            all.map((each) => ({
              word: each.querySelector(".label").textContent,
              share: each.querySelector(".value").textContent.split(" → ")[1],
            })),
          );
          const guess = shown.find(({ word }) => word.replace("·", "") === wanted.next.word.trim());
          expect("the share of the next token", guess?.share, wanted.next.share);
          expect("what the switch changes", (await textOf(page, ".switches p")).startsWith(says), true);
        },
        `${VIEW}&layer=1&head=${head}&query=${query}&key=${key}&${address}`,
      );
    return `next ${wanted.next.word.trim()} ${wanted.next.share}`;
  };

export const scenarios = {
  "a window": rule("window=4", "Each token sees itself and the 3 before it.", (i, j) => j <= i && i - j < 4, 1, [
    [6, 16, 15],
  ]),
  "a window with a sink": rule(
    "window=4&first=kept",
    "Each token sees itself and the 3 before it. The first token is seen from beyond the window, too.",
    (i, j) => j <= i && (i - j < 4 || j === 0),
    1,
    [[6, 16, 15]],
  ),
  "without the first token": rule(
    "first=hidden",
    "No other token sees the first one, which heads attend to when no other token matches.",
    (i, j) => j <= i && (j > 0 || i === 0),
    1,
    [[0, 16, 6]],
  ),
  "without causal order": rule(
    "causal=0",
    "Each token also sees those that come later, for which no head was trained.",
    () => true,
    1,
    [
      [6, 4, 12],
      [6, 4, 2],
    ],
  ),
  "one head of keys and values": rule(
    "kv=1",
    "One head of keys and values for 8 of queries: each is the mean of 2, as in a grouped model before any retraining.",
    (i, j) => j <= i,
    2,
  ),
  "switches by the keyboard, and back": (given) =>
    open(
      given,
      async (page) => {
        const plain = await expected(TEXT);
        await page.focus("#causal");
        await page.keyboard.press(" ");
        await page.waitForFunction(() => location.hash.includes("causal=0"));
        await page.waitForFunction(
          (digest) => document.getElementById("digest").textContent !== digest,
          {},
          plain.digest,
        );
        await page.focus("#kv");
        await page.keyboard.press("ArrowDown");
        await page.waitForFunction(() => location.hash.includes("kv=1"));
        await page.keyboard.press("ArrowUp");
        await page.focus("#causal");
        await page.keyboard.press(" ");
        await digestIs(page, plain.digest);
      },
      `${VIEW}&layer=1&head=6`,
    ),
};
