import { describe, expect, test } from "vitest";
import { createProgress } from "../../../src/cli/terminal.ts";

describe("progress", () => {
  const record = (isTTY: boolean, columns?: number) => {
    const clock = { ms: 0 };
    const written: string[] = [];
    const progress = createProgress({ isTTY, columns, write: (text) => written.push(text) }, () => clock.ms);
    return { progress, written, clock };
  };

  test("a bar is drawn over on a terminal, no longer than a line, and erased", () => {
    const { progress, written, clock } = record(true, 60);
    progress.at(0.01, "a");
    expect(written).toEqual([]);
    clock.ms += 600;
    progress.at(0.5, "50.0 MB of 100 MB  model.layers.0.self_attn.q_proj.weight");
    progress.at(0.51, "soon after");
    expect(written).toEqual(["\r\u001b[K[############............]  50 %  50.0 MB of 100 MB  model."]);
    expect(written[0]?.length).toBe(59 + 4);
    progress.end();
    progress.end();
    expect(written.slice(1)).toEqual(["\r\u001b[K"]);
  });

  test("without a terminal lines are rare, and short runs print none", () => {
    const { progress, written, clock } = record(false);
    clock.ms += 4000;
    progress.at(0.3, "a");
    progress.end();
    expect(written).toEqual([]);
    clock.ms += 2000;
    progress.at(0.4, "b");
    clock.ms += 4000;
    progress.at(0.7, "c");
    clock.ms += 2000;
    progress.at(0.9, "d");
    progress.end();
    expect(written).toEqual(["40 %  b\n", "90 %  d\n"]);
  });
});
