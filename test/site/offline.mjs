// The site without a network: after a visit of the first page, all come from the service worker, and so do models that were read once.

import { PAGES } from "../../site/pages.ts";
import { serveSite } from "../../site/serve.ts";
import { expect } from "../examples/given.mjs";
import { textOf, visit } from "../examples/pages.mjs";
import { ready } from "./every-page.mjs";

const DOCUMENT = "docs/guide/async.html";

export async function expectOffline({ browser }) {
  const { url, server } = await serveSite();
  const end = async () => {
    server.closeAllConnections();
    await new Promise((done) => server.close(done));
  };
  const open = (path, look = () => {}) =>
    visit(browser, url + path, async (page, errors) => {
      await ready(page);
      await look(page);
      expect(`errors of ${path}`, errors.join("; "), "");
    });
  try {
    await open("index.html", (page) => page.evaluate(async () => void (await navigator.serviceWorker.ready)));
    await open("gallery.html"); // it reads the models that the others show
  } finally {
    await end();
  }
  for (const { name } of PAGES) await open(`${name}.html`);
  await open(DOCUMENT, async (page) => {
    await (await page.$("[data-example] .actions button")).click();
    await page.waitForFunction(
      () => document.querySelector("[data-example] .actions button").textContent === "Run again",
    );
    expect("what the example printed", await textOf(page, "[data-example] output"), "100 %2000 2000");
    await page.type("#search", "sliding window");
    await page.waitForSelector("#results a");
  });
  return `${PAGES.length} pages, and a document with its example and the search, without a server`;
}
