// A page that lets its service worker do the work.

import { run } from "./harness.mjs";

run(async (step, entry) => {
  step("registering");
  const registration = await navigator.serviceWorker.register("./service-worker.mjs", { type: "module" });
  const worker = registration.installing ?? registration.waiting ?? registration.active;
  step("waiting for the service worker");
  const { port1, port2 } = new MessageChannel();
  const answer = new Promise((resolve) => {
    port1.onmessage = ({ data }) => (data.step ? step(data.step) : resolve(data));
  });
  worker.postMessage(entry, [port2]);
  const { result, error } = await answer;
  await registration.unregister();
  if (error) throw new Error(error);
  return result;
});
