// The pictures of the site that documents show, made from build/site: npm run site -- --images writes docs/images.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { serveSite } from "../../site/serve.ts";
import { launch, visit } from "../examples/pages.mjs";
import { drawn, ready } from "./every-page.mjs";

const TEXT = encodeURIComponent("the dog slept on the rug because it was soft . what was soft ? the");

/** By the name of the picture: an address, what is done there, and what then is shown. */
const IMAGES = {
  story: { address: "index.html", width: 1024, height: 720 },
  inspector: {
    ...{ address: `inspector.html#text=${TEXT}&layer=1&head=6&query=16&key=6`, width: 1280, height: 900 },
    shows: "#effects .about:not(:empty)",
  },
  write: { address: "write.html#temperature=0&tokens=48", width: 1024, height: 824, press: "#go" },
};
const MOST_BYTES = 60_000;

const root = join(import.meta.dirname, "../..");
const folder = join(root, "docs/images");
mkdirSync(folder, { recursive: true });
const { default: puppeteer } = await import("puppeteer-core");
const browser = await launch(puppeteer, "chrome", join(root, "test/browsers/install.sh"));
const { url, server } = await serveSite();
try {
  for (const [name, { address, width, height, press, shows = "body" }] of Object.entries(IMAGES)) {
    const bytes = await visit(browser, url + address, async (page) => {
      await page.setViewport({ width, height });
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "light" }]);
      await ready(page);
      if (press) {
        await page.click(press);
        await page.waitForFunction((selector) => !document.querySelector(selector).disabled, {}, press);
      }
      await page.waitForSelector(shows);
      await drawn(page);
      return smallest(page);
    });
    writeFileSync(join(folder, `${name}.webp`), bytes);
    console.log(`docs/images/${name}.webp ${(bytes.length / 1000).toFixed(1)} kB`);
  }
} finally {
  await browser.close();
  server.closeAllConnections();
  server.close();
}

/** The picture in the best quality that is not too large. */
async function smallest(page) {
  for (let quality = 90; quality >= 50; quality -= 5) {
    const bytes = await page.screenshot({ type: "webp", quality });
    if (bytes.length <= MOST_BYTES) return bytes;
  }
  throw new Error(`a picture expected at most ${MOST_BYTES} bytes, got more in any quality`);
}
