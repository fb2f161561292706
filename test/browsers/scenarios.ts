// The pages that are opened, and with which headers.

import {
  credentialless,
  isolated,
  type Judge,
  judgeDoctor,
  judgeModules,
  judgeOwnWorkers,
  judgeRanges,
  judgeRefusals,
  judgeShards,
  judgeThreadedWork,
  judgeWork,
  judgeWorkers,
  notIsolated,
} from "./judges.ts";
import type { Site } from "./serve.ts";

export interface Scenario extends Site {
  /** Behind the page's path. */
  readonly query: string;
  /** The page is one of an installed extension. */
  readonly extension?: boolean;
  readonly judge: Judge;
}

const ISOLATION = {
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
};
const CREDENTIALLESS = { ...ISOLATION, "Cross-Origin-Embedder-Policy": "credentialless" };
const STRICT = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'";
/** Of pages of extensions, which may connect to anywhere; this one may not. */
const EXTENSION_LIKE = "script-src 'self' 'wasm-unsafe-eval'; object-src 'self'; connect-src 'none'";
const policy = (text: string) => ({ "Content-Security-Policy": text });

const ONE = "?entry=headwise";
const THREADS = "?entry=threads";

export const SCENARIOS: readonly Scenario[] = [
  { name: "plain", headers: {}, script: "mapped.mjs", mapped: "here", query: ONE, judge: judgeWork(notIsolated) },
  {
    name: "isolated",
    headers: ISOLATION,
    script: "mapped.mjs",
    mapped: "here",
    query: THREADS,
    judge: judgeThreadedWork(isolated),
  },
  {
    name: "credentialless",
    headers: CREDENTIALLESS,
    script: "mapped.mjs",
    mapped: "here",
    query: THREADS,
    judge: judgeThreadedWork(credentialless),
  },
  {
    name: "other-origin",
    headers: ISOLATION,
    script: "mapped.mjs",
    mapped: "elsewhere",
    query: THREADS,
    judge: judgeThreadedWork(isolated),
  },
  { name: "csp", headers: policy(STRICT), script: "linked.mjs", query: ONE, judge: judgeWork(notIsolated) },
  {
    name: "csp-import-map",
    headers: policy(`${STRICT} {importmap}`),
    script: "mapped.mjs",
    mapped: "here",
    query: ONE,
    judge: judgeWork(notIsolated),
  },
  {
    name: "csp-threads",
    headers: { ...ISOLATION, ...policy(`${STRICT}; worker-src blob:`) },
    script: "linked.mjs",
    query: THREADS,
    judge: judgeThreadedWork(isolated),
  },
  {
    name: "csp-own-workers",
    headers: { ...ISOLATION, ...policy(`${STRICT}; worker-src 'self'`) },
    script: "own-workers.mjs",
    query: "",
    judge: judgeOwnWorkers,
  },
  {
    name: "csp-no-wasm",
    headers: policy("default-src 'none'; script-src 'self'; connect-src 'self'"),
    script: "no-codegen.mjs",
    query: "",
    judge: judgeRefusals,
  },
  {
    name: "extension-like",
    headers: policy(EXTENSION_LIKE),
    script: "linked.mjs",
    query: ONE,
    judge: judgeWork(notIsolated),
  },
  {
    name: "extension",
    headers: {},
    script: "linked.mjs",
    extension: true,
    query: THREADS,
    judge: judgeThreadedWork(isolated),
  },
  { name: "service-worker", headers: {}, script: "service-page.mjs", query: ONE, judge: judgeWork(notIsolated) },
  { name: "blob-worker", headers: {}, script: "blob-worker.mjs", query: ONE, judge: judgeWork(notIsolated) },
  {
    name: "blob-worker-isolated",
    headers: ISOLATION,
    script: "blob-worker.mjs",
    query: THREADS,
    judge: judgeThreadedWork(isolated),
  },
  { name: "modules", headers: {}, script: "modules.mjs", query: "", judge: judgeModules },
  { name: "doctor", headers: ISOLATION, script: "doctor.mjs", query: "", judge: judgeDoctor(isolated) },
  { name: "doctor-not-isolated", headers: {}, script: "doctor.mjs", query: "", judge: judgeDoctor(notIsolated) },
  {
    name: "doctor-no-wasm",
    headers: policy("default-src 'self'"),
    script: "doctor.mjs",
    query: "",
    judge: judgeDoctor(notIsolated, "no codegen", "'wasm-unsafe-eval'"),
  },
  { name: "ranges", headers: {}, script: "ranges.mjs", query: "", judge: judgeRanges },
  { name: "shards", headers: {}, script: "shards-page.mjs", query: "", judge: judgeShards },
  { name: "shards-isolated", headers: ISOLATION, script: "shards-page.mjs", query: "", judge: judgeShards },
  { name: "released", headers: ISOLATION, script: "release.mjs", query: "", judge: judgeWorkers(false) },
  { name: "kept", headers: ISOLATION, script: "release.mjs", query: "?keep", judge: judgeWorkers(true) },
];
