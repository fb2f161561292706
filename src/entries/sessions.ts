/**
 * Caches as pages of bytes, to store a conversation and continue it later, in another process or on another machine.
 * @packageDocumentation
 */

export { type CachePage, exportPages, importPages } from "../cache/export.ts";
