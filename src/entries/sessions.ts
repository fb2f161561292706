/**
 * Caches and sessions as pages of bytes, to store a conversation and continue it later, in another process or on another machine.
 * @packageDocumentation
 */

export { type CachePage, exportPages, importPages } from "../layers/state/export.ts";
export type { TokenIds } from "../models/decoder/forward.ts";
export type { Session } from "../models/decoder/session.ts";
export { exportSession, importSession } from "../models/decoder/session-pages.ts";
