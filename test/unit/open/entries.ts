// What the tests of this folder import.

export * from "../../../src/entries/index.ts";
export { statistics } from "../../../src/entries/inspect.ts";
export {
  createFolderStore,
  createSession,
  createStore,
  exportSession,
  forward,
  models,
} from "../../../src/entries/models.ts";
export { quantized } from "../../../src/entries/quantized.ts";
export { generateText } from "../../../src/entries/text.ts";
