// Runs before each test file; what it imports, once in each process.

import { fileURLToPath } from "node:url";
import "./equal-arrays.ts";

// Children that are Node keep what they compiled of the sources and the bundles. This process does not: each run loads its test
// files under other names.
process.env.NODE_COMPILE_CACHE = fileURLToPath(new URL("../../build/compile-cache", import.meta.url));
