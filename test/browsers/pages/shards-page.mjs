import { run } from "./harness.mjs";
import { twoShards } from "./shards.mjs";

run(() => twoShards());
