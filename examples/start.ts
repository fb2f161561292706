// `npm start -- [--model stories|induction] ...`: runs one of the trained models of this repository.

import { parseArgs } from "node:util";

const MODELS = ["stories", "induction"];

const { tokens } = parseArgs({ strict: false, tokens: true, options: { model: { type: "string" } } });
const chosen = tokens.flatMap((token) => (token.kind === "option" && token.name === "model" ? [token] : []));
const name = chosen.at(-1)?.value ?? (chosen.length > 0 ? "" : "stories");
if (!MODELS.includes(name)) {
  console.error(`--model takes ${MODELS.join(" or ")}; got ${JSON.stringify(name)}.`);
  process.exit(1);
}
// The rest is for the model's own program.
for (const { index, inlineValue } of chosen.toReversed()) process.argv.splice(2 + index, inlineValue ? 1 : 2);
await import(`./${name}/main.ts`);
