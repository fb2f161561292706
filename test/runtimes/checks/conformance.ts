import type { Entry } from "../../conformance/case.ts";
import { runFolder } from "../../conformance/suite.ts";
import type { Context } from "../suite.ts";

/** The cases of test/vectors, by their own adapters and tolerances. Whole models are those of the checks of decoders and encoders. */
export async function checkConformance({ kernels, fixtures, check }: Context): Promise<void> {
  const { cases } = JSON.parse(fixtures.texts["test/vectors/index.json"] as string) as { cases: Entry[] };
  for (const entry of cases.filter(({ folder }) => folder === undefined))
    await check(`conformance: ${entry.set} ${entry.name}`, async () => {
      const [result] = await runFolder("test/vectors", kernels, [entry]);
      if (result?.state !== "passed") throw new Error(result?.problems.join("; ") ?? "no result");
    });
}
