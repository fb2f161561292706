import { bitsOf, logitsOf, scoreHeads } from "../evaluate.ts";
import { type Measured, runGroups } from "../groups.ts";
import { round } from "../study.ts";
import type { CopyResult, Group } from "./result.ts";

type Shape = Pick<Group, "layers" | "heads" | "positions">;
type Name = "otherBits" | "bitsWithout" | "answer" | "previous";

export const measure = (cache: URL, report: (line: string) => void): Promise<CopyResult> =>
  runGroups<Shape, Name, object>(new URL("train.py", import.meta.url), cache, report, measureModel, () => ({}));

function measureModel({ task, session, sets, logits }: Measured) {
  const rows = sets[task];
  const other = sets[task === "fixed" ? "varied" : "fixed"];
  const heads = scoreHeads(session, rows);
  const first = heads.filter(({ layer }) => layer === 0);
  const { layer, head } = first.reduce((found, each) => (each.previous > found.previous ? each : found));
  const without = logitsOf(session, rows, [{ at: "z", layer, head, set: 0 }]);
  return {
    bits: round(bitsOf(logits, rows), 6),
    otherBits: round(bitsOf(logitsOf(session, other), other)),
    bitsWithout: round(bitsOf(without, rows)),
    answer: round(Math.max(...heads.map(({ answer }) => answer)), 3),
    previous: round(Math.max(...heads.map(({ previous }) => previous)), 3),
  };
}
