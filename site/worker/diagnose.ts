// A diagnosis of this engine, with what the policy of the site refused during it.

import * as headwise from "headwise/threads";
import type { PageDiagnosis } from "../../src/entries/doctor-view.ts";

export interface DiagnoseGiven {
  readonly version: string;
  readonly threads: "auto" | number;
  readonly deterministic: boolean;
}

/** Milliseconds after which the engine has reported what was refused. */
const LATE_MS = 100;

export async function diagnoseTask({ version, threads, deterministic }: DiagnoseGiven): Promise<PageDiagnosis> {
  const refused = new Set<string>();
  const listen = ({ effectiveDirective, blockedURI }: SecurityPolicyViolationEvent) =>
    refused.add(`${effectiveDirective} refused ${blockedURI}`);
  addEventListener("securitypolicyviolation", listen);
  try {
    const { diagnose } = await import("headwise/doctor");
    const { userAgent: engine, hardwareConcurrency: processors } = navigator;
    const found = await diagnose(headwise, { version, engine, processors }, { threads, deterministic });
    await new Promise((resolve) => setTimeout(resolve, LATE_MS));
    return { ...found, refused: [...refused] };
  } finally {
    removeEventListener("securitypolicyviolation", listen);
  }
}
