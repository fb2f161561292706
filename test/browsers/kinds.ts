import type { Browser } from "./drivers/browser.ts";
import { startPuppeteer } from "./drivers/puppeteer.ts";
import { startUnattended } from "./drivers/unattended.ts";
import { startWebKitPages } from "./drivers/webkit.ts";
import type { Abilities } from "./judges.ts";

/** A browser as it may be started. */
export interface Kind {
  readonly id: string;
  readonly can: Abilities;
  /** The scenarios that are worth their time there; all by default. */
  readonly scenarios?: readonly string[];
  /** Scenarios that another kind runs in the same browser. */
  readonly leftOut?: readonly string[];
  start(): Promise<Browser>;
}

/** Whose workers start workers, which Firefox does not do reliably while a driver is attached. */
const NESTED_WORKERS = ["blob-worker-isolated"];

export const KINDS: readonly Kind[] = [
  {
    id: "chromium",
    can: { relaxedSimd: true, sharedMemory: true, credentialless: true },
    start: () => startPuppeteer("chromium"),
  },
  {
    id: "firefox",
    can: { relaxedSimd: true, sharedMemory: true, credentialless: true },
    leftOut: NESTED_WORKERS,
    start: () => startPuppeteer("firefox"),
  },
  {
    id: "firefox-unattended",
    can: { relaxedSimd: true, sharedMemory: true, credentialless: true },
    scenarios: NESTED_WORKERS,
    start: startUnattended,
  },
  {
    id: "webkit",
    can: { relaxedSimd: false, sharedMemory: false, credentialless: false },
    start: () => startWebKitPages("WebKitGTK", {}),
  },
  {
    // What WebKit can do and does not do by itself. Its relaxed SIMD lacks products of bytes.
    id: "webkit-switched",
    can: { relaxedSimd: false, sharedMemory: true, credentialless: false },
    scenarios: ["plain", "isolated", "csp-own-workers", "blob-worker-isolated", "shards-isolated", "released"],
    start: () => startWebKitPages("WebKitGTK switched", { JSC_useWasmRelaxedSIMD: "1", JSC_useSharedArrayBuffer: "1" }),
  },
];
