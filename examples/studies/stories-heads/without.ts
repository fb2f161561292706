// What is lost without heads.

import { type Edit, forwardWith } from "headwise/inspect";
import type { Session } from "headwise/models";
import { TorchRandom } from "../../seeds/torch-random.ts";
import { mean, round } from "../study.ts";
import type { Seen } from "./look-at.ts";
import type { Look, Story } from "./looks.ts";
import { byWeight, type Grid, type Group, type Head, MOST_STORIES, NEEDED } from "./result.ts";

const COUNTS = [1, 2, 4, 6, 8];
const OTHER_SETS = 5;

/** A story up to its last word that a look is asked for, and these words. */
export interface Asked {
  readonly ids: readonly number[];
  readonly targets: Story["probes"];
}

/** The first stories that have words of a look. */
export function askFor({ probes }: Look, stories: readonly Story[]): Asked[] {
  return stories
    .flatMap((story) => {
      const targets = story.probes.filter(({ name }) => probes.includes(name));
      return targets.length === 0 ? [] : [{ ids: story.ids.slice(0, targets.at(-1)!.at + 1), targets }];
    })
    .slice(0, MOST_STORIES);
}

/** The share of the words that are the likeliest ones at their places. */
export function shareKnown(session: Session, asked: readonly Asked[], edits: readonly Edit[] = []): number {
  const hits = asked.flatMap(({ ids, targets }) => {
    session.truncate(0);
    const { ids: best } = forwardWith(session, ids, { rows: "all", top: 1, edits });
    return targets.map(({ at }) => Number(best![at - 1] === ids[at]));
  });
  return round(mean(hits));
}

type Ablation = "zero" | "mean";

/** What is known of the words without single heads, without those that look most, and without as many others. */
export function withoutHeads(session: Session, asked: readonly Asked[], weights: Grid, meanOf: Seen["meanOf"]) {
  const share = (heads: readonly Head[], by: Ablation) => {
    const edits = heads.map((head): Edit => ({ at: "z", ...head, set: by === "zero" ? 0 : meanOf(head) }));
    return shareKnown(session, asked, edits);
  };
  const gridOf = (by: Ablation) => weights.map((row, layer) => row.map((_, head) => share([{ layer, head }], by)));
  const [withoutZero, withoutMean] = [gridOf("zero"), gridOf("mean")];
  const accuracy = shareKnown(session, asked);
  const order = byWeight(weights);
  const groups = COUNTS.map((count): Group => {
    const top = order.slice(0, count);
    const others = order.slice(count).filter(({ layer, head }) => accuracy - withoutZero[layer]![head]! < NEEDED);
    const sets = Array.from({ length: OTHER_SETS }, (_, set) => {
      const draws = new TorchRandom(set).randn([others.length]).data;
      const shuffled = others.map((head, i) => ({ head, draw: draws[i]! })).sort((a, b) => a.draw - b.draw);
      return shuffled.slice(0, count).map(({ head }) => head);
    });
    return {
      count,
      ...{ zero: share(top, "zero"), mean: share(top, "mean") },
      othersZero: sets.map((set) => share(set, "zero")),
      othersMean: sets.map((set) => share(set, "mean")),
    };
  });
  const targets = asked.flatMap((each) => each.targets);
  const chance = round(mean(targets.map((target) => target.chance)));
  return { targets: targets.length, accuracy, chance, withoutZero, withoutMean, groups };
}
