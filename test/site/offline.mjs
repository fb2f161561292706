// The site without a network: after one visit of each page, all come from the service worker, models included.

import { PAGES } from "../../site/pages.ts";
import { serveSite } from "../../site/serve.ts";
import { visit } from "../examples/pages.mjs";
import { ready } from "./every-page.mjs";

export async function expectOffline(browser) {
  const { url, server } = await serveSite();
  await visit(browser, `${url}index.html`, async (page) => {
    await ready(page);
    await page.evaluate(async () => void (await navigator.serviceWorker.ready));
  });
  for (const { name } of PAGES) await visit(browser, `${url}${name}.html`, ready);
  server.closeAllConnections();
  await new Promise((done) => server.close(done));
  for (const { name } of PAGES) await visit(browser, `${url}${name}.html`, ready);
  return `${PAGES.length} pages without a server`;
}
