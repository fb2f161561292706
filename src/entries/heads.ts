/**
 * Operations on heads, for projections of your own: rotary embedding by tables, and splitting rows into heads and back.
 * @packageDocumentation
 */

export { type ApplyRopeOptions, applyRope, mergeHeads, splitHeads } from "../layers/api/heads.ts";
export { ropeTables } from "../layers/attention/rope.ts";
