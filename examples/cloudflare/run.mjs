// The whole example as CI runs it: installs the locked packages and the packed package, checks types, runs the tests and
// the load test. Options are passed to load.mjs: `node examples/cloudflare/run.mjs --sessions 20 --seconds 20`.

import { install, run } from "./harness/install.mjs";

install();
run(process.execPath, "--test-reporter=spec", "--test", "test.mjs");
run(process.execPath, "load.mjs", ...process.argv.slice(2));
