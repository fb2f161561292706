// Clusters of lines by the mean cosine between their members, and the order in which they join.

/** Two clusters that become one, each named by the smallest of its lines. */
export interface Join {
  readonly first: number;
  readonly second: number;
  /** The mean of the cosines between a line of one and a line of the other; never larger than that of the join before. */
  readonly cosine: number;
}

/** All joins of `count` lines with these cosines [count, count], the most alike first. */
export function joinLines(cosines: Float32Array, count: number): Join[] {
  const means = Float64Array.from(cosines);
  const sizes = new Float64Array(count).fill(1);
  const left = Array.from({ length: count }, (_, i) => i);
  const best = new Int32Array(count);
  const meanOf = (a: number, b: number) => means[a * count + b] as number;
  const findBest = (a: number): void => {
    best[a] = left.reduce((found, b) => (b !== a && (found < 0 || meanOf(a, b) > meanOf(a, found)) ? b : found), -1);
  };
  for (const a of left) findBest(a);
  const joins: Join[] = [];
  while (left.length > 1) {
    const one = left.reduce((found, a) => (meanOf(a, best[a]!) > meanOf(found, best[found]!) ? a : found));
    const [first, second] = [Math.min(one, best[one]!), Math.max(one, best[one]!)];
    joins.push({ first, second, cosine: meanOf(first, second) });
    left.splice(left.indexOf(second), 1);
    const [m, n] = [sizes[first]!, sizes[second]!];
    for (const each of left)
      means[first * count + each] = means[each * count + first] =
        (m * meanOf(first, each) + n * meanOf(second, each)) / (m + n);
    sizes[first] = m + n;
    // A mean of two numbers is larger than neither: no other cluster comes to prefer the new one.
    for (const each of left) if (each === first || best[each] === first || best[each] === second) findBest(each);
  }
  return joins;
}

/**
 * The clusters that joins of at least this cosine make, in the order in which they would join on; those of one line are behind the
 * others.
 */
export function clustersAt(joins: readonly Join[], count: number, least: number): number[][] {
  const members = Array.from({ length: count }, (_, i) => [[i]]);
  for (const { first, second, cosine } of joins) {
    const [a, b] = [members[first] as number[][], members[second] as number[][]];
    members[first] = cosine >= least ? [[...a.flat(), ...b.flat()]] : [...a, ...b];
  }
  const all = count === 0 ? [] : (members[0] as number[][]);
  return [...all.filter(({ length }) => length > 1), ...all.filter(({ length }) => length === 1)];
}
