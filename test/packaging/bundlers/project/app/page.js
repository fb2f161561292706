"use client";

import { useEffect } from "react";

import { runTrial } from "../trial.js";

export default function Page() {
  useEffect(() => {
    runTrial().then(
      (outcome) => {
        globalThis.outcome = outcome;
      },
      (error) => {
        globalThis.outcome = { error: String(error?.stack ?? error) };
      },
    );
  }, []);
  return <main>headwise</main>;
}
