// Runs before each test file; what it imports, once in each process.

import "./equal-arrays.ts";
