import type { Browser } from "./drivers/browser.ts";
import { startPuppeteer } from "./drivers/puppeteer.ts";
import { startWebKit } from "./drivers/webkit.ts";
import type { Abilities } from "./judges.ts";

/** A browser as it may be started. */
export interface Kind {
  readonly id: string;
  readonly can: Abilities;
  /** The scenarios that are worth their time there; all by default. */
  readonly scenarios?: readonly string[];
  start(): Promise<Browser>;
}

export const KINDS: readonly Kind[] = [
  {
    id: "chromium",
    can: { relaxedSimd: true, sharedMemory: true, credentialless: true },
    start: () => startPuppeteer("chromium"),
  },
  {
    id: "firefox",
    can: { relaxedSimd: true, sharedMemory: true, credentialless: true },
    start: () => startPuppeteer("firefox"),
  },
  {
    id: "webkit",
    can: { relaxedSimd: false, sharedMemory: false, credentialless: false },
    start: () => startWebKit("WebKitGTK", {}),
  },
  {
    // What WebKit can do and does not do by itself. Its relaxed SIMD lacks products of bytes.
    id: "webkit-switched",
    can: { relaxedSimd: false, sharedMemory: true, credentialless: false },
    scenarios: ["plain", "isolated", "csp-own-workers", "blob-worker-isolated", "shards-isolated", "released"],
    start: () => startWebKit("WebKitGTK switched", { JSC_useWasmRelaxedSIMD: "1", JSC_useSharedArrayBuffer: "1" }),
  },
];
