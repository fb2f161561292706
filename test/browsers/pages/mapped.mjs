// A page with an import map: it imports the package by its name.

import { run } from "./harness.mjs";
import * as entries from "./package.mjs";
import { work } from "./work.mjs";

run((step, entry) => work(entries, entry, step));
