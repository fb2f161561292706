// A diagnosis of this engine, with what the policy of the site refused during it.

import type { Diagnosis } from "headwise/doctor";
import * as headwise from "headwise/threads";

export interface DiagnoseGiven {
  readonly version: string;
  readonly threads: "auto" | number;
  readonly deterministic: boolean;
}

export interface SiteDiagnosis extends Diagnosis {
  readonly refused: readonly string[];
}

/** Milliseconds after which the engine has reported what was refused. */
const LATE_MS = 100;

export async function diagnoseTask({ version, threads, deterministic }: DiagnoseGiven): Promise<SiteDiagnosis> {
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
