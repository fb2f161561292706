// Where a model is to run, and what that place allows.

import type { WeightFormat } from "../linear/formats.ts";
import { LARGEST_MEMORY } from "../wasm/memory.ts";

/** Where a model runs: in a page of a desktop, of a phone, in an edge worker, or in a process of a server. */
export type Target = "browser" | "phone" | "worker" | "server";

/** What a target allows. */
export interface TargetRules {
  /** Bytes of linear memory for weights, one session and a call. */
  readonly memory: number;
  /** Formats of weights to try, the first that fits is taken. */
  readonly weights: readonly WeightFormat[];
  /** Where these numbers are from. */
  readonly reason: string;
}

/** Every target. */
export const TARGET_NAMES: readonly Target[] = ["browser", "phone", "worker", "server"];

export const TARGETS: Readonly<Record<Target, TargetRules>> = {
  browser: {
    memory: 2 ** 31,
    weights: ["q8", "q4"],
    reason:
      "half of the 4 GiB that 32-bit addresses reach, since a tab has other memory too; a download is worth 8 bits",
  },
  phone: {
    memory: 2 ** 30,
    weights: ["q8", "q4"],
    reason: "phones with 4 GiB end a tab that takes much more than one of them",
  },
  worker: {
    memory: 100 * 2 ** 20,
    weights: ["q8", "q4"],
    reason: "Cloudflare Workers have 128 MB for code, heap and linear memory",
  },
  server: {
    memory: LARGEST_MEMORY,
    weights: ["f16", "q8", "q4"],
    reason: "all that 32-bit addresses reach",
  },
};
