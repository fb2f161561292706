import { expect, test } from "vitest";
import { filesOf } from "../../../site/worker/configure.ts";

const MODEL = "https://huggingface.co/org/a-model.v2";

test.each([
  [MODEL, `${MODEL}/resolve/main/`],
  [`${MODEL}/`, `${MODEL}/resolve/main/`],
  [`${MODEL}/tree/main`, `${MODEL}/resolve/main`],
  [`${MODEL}/blob/v1/config.json`, `${MODEL}/resolve/v1/config.json`],
  [`${MODEL}/blob/main/some/model.gguf`, `${MODEL}/resolve/main/some/model.gguf`],
  [`${MODEL}/resolve/main/config.json`, `${MODEL}/resolve/main/config.json`],
  ["https://example.com/org/model", "https://example.com/org/model"],
])("the files of %s are at %s", (page, files) => {
  expect(filesOf(page)).toBe(files);
});
