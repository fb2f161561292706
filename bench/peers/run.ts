// npm run bench:peers [-- --quick] [--only NAME] [--peers A,B] [--json FILE]
// NAME is part of a work's name, or start, size, memory, long. FILE keeps the rows of earlier runs that this one does not
// measure, so that the table can be made in several runs; with --show it is only printed.

import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { originOf } from "../lib/machine.ts";
import { measureLong } from "./long-prompt.ts";
import { createPeak, full, measure, quick } from "./measure.ts";
import { measureMemory, measureStart } from "./measure-processes.ts";
import { measureSizes } from "./measure-sizes.ts";
import type { FoundPeer, Peer } from "./peer.ts";
import { answerOf } from "./reference.ts";
import { emptyResult, type Result } from "./result.ts";
import { printTables, rowLine } from "./table.ts";
import { firstWork, largeWork, workRows } from "./works.ts";

async function findPeers(only: string): Promise<FoundPeer[]> {
  const folder = join(import.meta.dirname, "peers");
  const files = readdirSync(folder).filter((file) => file.endsWith(".ts"));
  const found = await Promise.all(
    files.map(async (file) => ({ ...((await import(join(folder, file))) as { peer: Peer }).peer, file })),
  );
  const names = only === "" ? undefined : only.split(",");
  return found
    .filter(({ name, column }) => column === 0 || !names || names.some((part) => name.includes(part)))
    .sort((a, b) => a.column - b.column);
}

const { values: options } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    only: { type: "string", default: "" },
    peers: { type: "string", default: "" },
    json: { type: "string" },
    show: { type: "boolean", default: false },
  },
});
const { json } = options;
const earlier =
  json !== undefined && existsSync(json) ? (JSON.parse(readFileSync(json, "utf8")) as Result) : emptyResult;
const peers = await findPeers(options.peers);
const wanted = (name: string) => !options.show && name.includes(options.only);
const versions = Object.fromEntries(peers.map(({ name, version }) => [name, version]));
let result: Result = options.show ? earlier : { ...earlier, ...originOf(), versions };
const keep = (part: Partial<Result>) => {
  result = { ...result, ...part };
  if (json !== undefined) writeFileSync(json, `${JSON.stringify(result, null, 2)}\n`);
};

/** By peer, its fastest way of a work, if that has been measured. */
function fastestWays(name: string): Record<string, string> {
  const timings = result.rows.find(({ work }) => work === name)?.timings ?? [];
  return Object.fromEntries(timings.filter(({ aside }) => !aside).map(({ peer, way }) => [peer, way]));
}

const works = workRows.filter(({ name, quick: short }) => wanted(name) && (short || !options.quick));
if (works.length > 0 || wanted("long")) for (const peer of peers) await peer.load();
if (works.length > 0) {
  const peak = await createPeak();
  for (const { name, flops, make } of works) {
    const work = make();
    const given = peers.map((peer) => ({ peer, ways: peer.ways(work) }));
    const measured = await measure(given, answerOf(work), peak, options.quick ? quick : full);
    const row = { work: name, flops, ...measured };
    console.error(rowLine(row));
    keep({ rows: [...result.rows.filter((one) => one.work !== name), row] });
  }
}
if (wanted("long") && !options.quick) keep({ long: await measureLong() });
if (wanted("start")) keep({ start: await measureStart(peers, fastestWays(firstWork.name), options.quick ? 3 : 15) });
if (wanted("memory") && !options.quick) keep({ memory: await measureMemory(peers, fastestWays(largeWork.name)) });
if (wanted("size")) keep({ sizes: await measureSizes(peers) });

printTables(
  result,
  workRows.map(({ name }) => name),
);
process.exit(); // some peers leave handles open
