// A page without an import map: it imports the package's files by their addresses.

import { run } from "./harness.mjs";
import * as entries from "./package-files.mjs";
import { work } from "./work.mjs";

run((step, entry) => work(entries, entry, step));
