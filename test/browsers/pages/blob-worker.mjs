// A worker that was made from text, which imports the package by absolute addresses.

import { run } from "./harness.mjs";

const at = (file) => JSON.stringify(new URL(file, import.meta.url).href);
const text = (entry) => `
  import * as entries from ${at("package-files.mjs")};
  import { work } from ${at("work.mjs")};
  work(entries, "${entry}", (step) => postMessage({ step })).then(
    (result) => postMessage({ result }),
    (error) => postMessage({ error: error + "\\n" + error.stack }),
  );
`;

run(async (step, entry) => {
  const url = URL.createObjectURL(new Blob([text(entry)], { type: "text/javascript" }));
  const worker = new Worker(url, { type: "module" });
  step("waiting for the worker");
  const { result, error } = await new Promise((resolve) => {
    worker.onmessage = ({ data }) => (data.step ? step(data.step) : resolve(data));
    worker.onerror = ({ message }) => resolve({ error: `the worker failed: ${message}` });
  });
  worker.terminate();
  if (error) throw new Error(error);
  return result;
});
