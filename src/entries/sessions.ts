/**
 * Caches and sessions as pages of bytes, to store a conversation and continue it later, in another process or on another machine.
 * @packageDocumentation
 */

export { type CachePage, exportPages, importPages } from "../cache/export.ts";
export type { TokenIds } from "../decoder/forward.ts";
export type { Session } from "../decoder/session.ts";
export { exportSession, importSession } from "../decoder/session-pages.ts";
