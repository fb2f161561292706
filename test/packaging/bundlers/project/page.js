import { runTrial } from "./trial.js";

runTrial().then(
  (outcome) => {
    globalThis.outcome = outcome;
  },
  (error) => {
    globalThis.outcome = { error: String(error?.stack ?? error) };
  },
);
