// Runs before each test file; what it imports, once in each process.

import { fileURLToPath } from "node:url";
import { setFlagsFromString } from "node:v8";
import "./equal-arrays.ts";

// Files and modules of some MB come and go, and after each 64 MB of them V8 would collect a heap that has all sources: a third of
// the time of some files. With this flag they count as the heap does. A version that lacks it says so, and goes on.
setFlagsFromString("--external-memory-accounted-in-global-limit");

// Children that are Node keep what they compiled of the sources and the bundles. This process does not: each run loads its test
// files under other names.
process.env.NODE_COMPILE_CACHE = fileURLToPath(new URL("../../build/compile-cache", import.meta.url));
