// The site without a network: after one visit of each page, all come from the service worker, models included.

import { PAGES } from "../../site/pages.ts";
import { serveSite } from "../../site/serve.ts";
import { visit } from "../examples/pages.mjs";
import { ready } from "./every-page.mjs";

export async function expectOffline({ browser }) {
  const { url, server } = await serveSite();
  const end = async () => {
    server.closeAllConnections();
    await new Promise((done) => server.close(done));
  };
  const visitAll = async () => {
    for (const { name } of PAGES) await visit(browser, `${url}${name}.html`, ready);
  };
  try {
    await visit(browser, `${url}index.html`, async (page) => {
      await ready(page);
      await page.evaluate(async () => void (await navigator.serviceWorker.ready));
    });
    await visitAll();
  } finally {
    await end();
  }
  await visitAll();
  return `${PAGES.length} pages without a server`;
}
