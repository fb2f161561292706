// A service worker of type "module": imports are static there, since import() is refused.

import * as entries from "./package-files.mjs";
import { work } from "./work.mjs";

self.addEventListener("message", (event) => {
  const [port] = event.ports;
  const done = work(entries, event.data, (step) => port.postMessage({ step })).then(
    (result) => port.postMessage({ result }),
    (error) => port.postMessage({ error: `${error}\n${error.stack}` }),
  );
  event.waitUntil(done);
});
