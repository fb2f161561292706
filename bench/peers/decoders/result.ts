import type { Origin } from "../../lib/machine.ts";
import type { Rate } from "./measure-decoder.ts";

/** A decoder in a variant. */
export interface DecoderRow {
  readonly model: string;
  readonly variant: string;
  /** By round: what a process or page measured. */
  readonly rounds: readonly Round[];
  /** The largest difference from the logits of headwise's first format, relative to the largest of them. */
  readonly error?: number;
  /** Why there is no more. */
  readonly reason?: string;
}

export interface Round {
  readonly rates: Readonly<Record<string, Rate>>;
  readonly startSeconds: number;
  readonly peakBytes: number;
}

/** The file of --json. */
export interface DecoderResult extends Origin {
  readonly versions: Readonly<Record<string, string>>;
  readonly rows: readonly DecoderRow[];
}
