// An address shows the same bits in every engine: the digests of the build that rounds the same everywhere.

import { expect } from "../examples/given.mjs";
import { textOf, visit } from "../examples/pages.mjs";
import { ready } from "./every-page.mjs";

const TEXT = encodeURIComponent("the dog slept on the rug because it was soft . what was soft ? the");
const LINES = encodeURIComponent("the cat sat on the mat.\nthe dog slept on the rug.\nanna was hungry.");

/** Addresses, and what is done there before the digest is there; most show it at once. */
const ADDRESSES = {
  [`inspector.html#deterministic=yes&text=${TEXT}`]: undefined,
  [`inspector.html#deterministic=yes&text=${TEXT}&weights=q4&cache=q8&edits=1.6*0`]: undefined,
  "write.html#deterministic=yes&temperature=0&tokens=24": "#go",
  "write.html#deterministic=yes&temperature=0.9&seed=7&tokens=24": "#go",
  [`embeddings.html#deterministic=yes&lines=${LINES}`]: undefined,
  "positions.html#content=random&seed=7&trained=32&scaling=yarn": undefined,
};

/** The digest that an engine shows at each address. */
export async function readDigests({ browser, url }) {
  const digests = {};
  for (const [address, button] of Object.entries(ADDRESSES))
    digests[address] = await visit(browser, `${url}docs.html`, async (page) => {
      // The text of another visit would be another text.
      await page.evaluate(() => localStorage.clear());
      await page.goto(`${url}${address}`);
      await ready(page);
      if (button) await page.click(button);
      await page.waitForFunction(() => /^([\da-f]{8}){1,2}$/.test(document.getElementById("digest").textContent));
      return textOf(page, "#digest");
    });
  return digests;
}

/** Throws unless all engines showed the same digests, and addresses different ones. */
export function expectSameBits(engines, digests) {
  const [first, ...others] = digests;
  const lines = Object.keys(ADDRESSES).map((address) => {
    for (const [i, other] of others.entries())
      expect(`the digest of ${address} in ${engines[i + 1].kind}`, other[address], first[address]);
    return `${first[address]} ${address.slice(0, 60)}`;
  });
  expect("different digests", new Set(Object.values(first)).size, lines.length);
  return `${engines.map(({ kind }) => kind).join(", ")}:\n      ${lines.join("\n      ")}`;
}
