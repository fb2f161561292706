import { loadKernels } from "headwise";
import { models } from "headwise/models";
import { createIndex, type PackedVectors, packVectors, type ScoreFunction, similarity } from "headwise/retrieval";
import { loadKernels as loadThreads } from "headwise/threads";
import { afterAll, expect, test } from "vitest";
import { createRandom } from "../../support/harness.ts";

const kernels = await loadKernels({ models });
const exact = await loadKernels({ models, deterministic: true });
afterAll(() => {
  kernels.release();
  exact.release();
});

const FORMATS = ["f32", "int8", "binary"] as const;
const FUNCTIONS: readonly ScoreFunction[] = ["cosine", "dot", "euclidean", "manhattan"];

function randomVectors(seed: number, count: number, dimensions: number): Float32Array[] {
  const random = createRandom(seed);
  return Array.from({ length: count }, () => Float32Array.from({ length: dimensions }, () => random.normal()));
}

/** The numbers that packed rows stand for. */
function unpack({ format, rows, dimensions, bytes }: PackedVectors): Float32Array[] {
  const width = bytes.length / rows;
  return Array.from({ length: rows }, (_, r) => {
    const view = new DataView(bytes.buffer, bytes.byteOffset + r * width, width);
    return Float32Array.from({ length: dimensions }, (_, i) => {
      if (format === "f32") return view.getFloat32(4 * i, true);
      if (format === "int8") return view.getInt8(i) * view.getFloat32(dimensions, true);
      return (view.getUint8(i >> 3) >> (7 - (i & 7))) & 1 ? 1 : -1;
    });
  });
}

test("similarity has the values that sentence-transformers documents for its four functions", () => {
  const a = [
    [3, 4],
    [0, 0],
  ];
  const b = [[6, 8], Float32Array.of(-4, 3)];
  const rows = (fn?: ScoreFunction) => similarity(a, b, fn).map((row) => [...row]);
  expect(rows()).toEqual([
    [1, 0],
    [0, 0],
  ]);
  expect(rows("dot")).toEqual([
    [50, 0],
    [0, 0],
  ]);
  expect(rows("euclidean")).toEqual([
    [-5, -Math.fround(Math.sqrt(50))],
    [-10, -5],
  ]);
  expect(rows("manhattan")).toEqual([
    [-7, -8],
    [-14, -7],
  ]);
});

test("rows are float32; integers with a scale, ties to even; bits from the most significant one on, 0 for 0", () => {
  expect([...new Float32Array(packVectors([[1, -2]]).bytes.buffer)]).toEqual([1, -2]);
  const int8 = packVectors([[127, -2.5, 1.5, -0.5, 0]], { format: "int8" }).bytes;
  expect([...new Int8Array(int8.buffer, 0, 5)]).toEqual([127, -2, 2, -0, 0].map((x) => x + 0));
  expect(new DataView(int8.buffer).getFloat32(5, true)).toBe(1);
  expect(packVectors([[1, 0, 0.1, -1, 1, 1, -0, 1, 1]], { format: "binary" }).bytes).toEqual(Uint8Array.of(0xad, 0x80));
});

test.each(FORMATS)(
  "%s: results are the best of all rows, equal ones by their index, in passes of any size",
  (format) => {
    for (const [count, dimensions] of [
      [1, 1],
      [40, 5],
      [16_390, 33],
    ] as const) {
      const vectors = randomVectors(count, count, dimensions);
      // The same row twice, in two blocks where there are two.
      if (count > 1) vectors[count - 1] = vectors[3] as Float32Array;
      const packed = packVectors(vectors, { format });
      using index = createIndex(kernels, packed);
      const queries = randomVectors(7, 2, dimensions);
      queries.push(vectors[3] ?? queries[0]!);
      // The query of integers is rounded, too, and that of bits is bits.
      const asked = format === "binary" ? unpack(packVectors(queries, { format })) : queries;
      for (const fn of format === "f32" ? FUNCTIONS : FUNCTIONS.slice(0, 2)) {
        const scores = similarity(asked, unpack(packed), fn);
        const topK = Math.min(17, count);
        const found = index.search(queries, { topK: 17, fn });
        for (const [q, hits] of found.entries()) {
          const row = scores[q] as Float32Array;
          const largest = [...row].sort((x, y) => y - x).slice(0, topK);
          const bound = 3e-4 * Math.max(...row.map(Math.abs), 1);
          expect(hits.length).toBe(topK);
          for (const [i, { index: at, score }] of hits.entries()) {
            expect(Math.abs(score - row[at]!)).toBeLessThanOrEqual(bound);
            expect(Math.abs(score - largest[i]!)).toBeLessThanOrEqual(bound);
            const next = hits[i + 1];
            if (next) expect(score > next.score || (score === next.score && at < next.index)).toBe(true);
          }
          expect(index.search(queries[q]!, { topK: 17, fn })).toEqual(hits);
        }
        if (count > 1 && fn === "cosine") expect(found[2]!.slice(0, 2).map((hit) => hit.index)).toContain(3);
      }
    }
  },
);

test("more queries than share a pass, and more rows than a block, are found as each alone", () => {
  const vectors = randomVectors(1, 20_000, 8);
  using index = createIndex(kernels, packVectors(vectors, { format: "int8" }));
  const queries = vectors.slice(0, 37);
  const found = index.search(queries, { topK: 3 });
  expect(found.map(([first]) => first?.index)).toEqual([...queries.keys()]);
  expect(found[20]).toEqual(index.search(queries[20]!, { topK: 3 }));
  const all = index.search(queries[0]!, { topK: 30_000 });
  expect(all.length).toBe(20_000);
  expect(all.slice(0, 3)).toEqual(found[0]);
  expect(new Set(all.map((hit) => hit.index)).size).toBe(20_000);
});

test("integers and bits have the same scores in both builds", () => {
  const vectors = randomVectors(2, 300, 100);
  for (const format of ["int8", "binary"] as const) {
    const packed = packVectors(vectors, { format });
    using one = createIndex(kernels, packed);
    using other = createIndex(exact, packed);
    for (const fn of ["cosine", "dot"] as const)
      expect(one.search(vectors.slice(0, 5), { fn })).toEqual(other.search(vectors.slice(0, 5), { fn }));
  }
});

test("threads give the bits of one", async () => {
  using two = await loadThreads({ models, threads: 2 });
  expect(two.threads.used).toBe(2);
  const vectors = randomVectors(12, 20_001, 24);
  for (const format of FORMATS) {
    const packed = packVectors(vectors, { format });
    using one = createIndex(kernels, packed);
    using shared = createIndex(two, packed);
    expect(shared.search(vectors.slice(0, 3))).toEqual(one.search(vectors.slice(0, 3)));
  }
});

test("rescore orders what bits choose by the floats of the query", () => {
  const vectors = randomVectors(4, 500, 64);
  const packed = packVectors(vectors, { format: "binary" });
  using index = createIndex(kernels, packed);
  const [query] = randomVectors(5, 1, 64) as [Float32Array];
  const chosen = index.search(query, { topK: 40 }).map((hit) => hit.index);
  const signs = unpack(packed);
  for (const fn of ["cosine", "dot"] as const) {
    const found = index.search(query, { topK: 10, fn, rescore: 4 });
    const scores = similarity(
      [query],
      chosen.map((i) => signs[i]!),
      fn,
    )[0]!;
    const want = chosen.map((at, i) => ({ at, score: scores[i]! })).sort((a, b) => b.score - a.score);
    expect(found.map((hit) => hit.index)).toEqual(want.slice(0, 10).map(({ at }) => at));
    for (const [i, hit] of found.entries()) expect(hit.score).toBeCloseTo(want[i]!.score, 5);
  }
});

test.each(FORMATS)("%s: rows that are added one by one or at once are found as those of one index", (format) => {
  const vectors = randomVectors(6, 60, 20);
  const pack = (some: readonly Float32Array[]) => packVectors(some, { format });
  using whole = createIndex(kernels, pack(vectors));
  const before = kernels.usedBytes;
  const grown = createIndex(kernels, { format, rows: 0, dimensions: 20, bytes: new Uint8Array() });
  expect(grown.search(vectors[0]!)).toEqual([]);
  expect(grown.search(vectors.slice(0, 2))).toEqual([[], []]);
  grown.add(pack(vectors.slice(0, 9)));
  for (const vector of vectors.slice(9, 30)) grown.add(pack([vector]));
  grown.add(pack(vectors.slice(30)));
  expect(grown.rows).toBe(60);
  expect(grown.search(vectors, { topK: 4, fn: "dot" })).toEqual(whole.search(vectors, { topK: 4, fn: "dot" }));
  expect(kernels.usedBytes - before).toBeGreaterThanOrEqual(grown.bytes);
  grown.release();
  grown.release();
});

test("an index takes its bytes, and release gives them back", () => {
  using warm = createIndex(kernels, packVectors(randomVectors(8, 3, 384)));
  const before = kernels.usedBytes;
  const index = createIndex(kernels, packVectors(randomVectors(8, 100, 384), { format: "int8" }));
  expect(kernels.usedBytes - before).toBe(index.bytes);
  expect(index.bytes).toBeLessThan(100 * (384 + 8) + 128);
  index.release();
  expect(kernels.usedBytes).toBe(before);
  expect(() => index.search(new Float32Array(384))).toThrow("search: index was released");
  expect(() => index.add(packVectors([new Float32Array(384)], { format: "int8" }))).toThrow("add: index was released");
  expect(warm.released).toBe(false);
  const empty = createIndex(kernels, { format: "f32", rows: 0, dimensions: 3, bytes: new Uint8Array() });
  expect([empty.rows, empty.bytes]).toEqual([0, 0]);
  empty.release();
  expect(kernels.usedBytes).toBe(before);
});

test("bytes are read at any offset, and stored records as they were packed", () => {
  const vectors = randomVectors(9, 10, 12);
  for (const format of FORMATS) {
    const packed = packVectors(vectors, { format });
    const shifted = new Uint8Array(packed.bytes.length + 1);
    shifted.set(packed.bytes, 1);
    const { bytes, ...rest } = packed;
    const stored = { ...JSON.parse(JSON.stringify(rest)), bytes: shifted.subarray(1) };
    using one = createIndex(kernels, packed);
    using other = createIndex(kernels, stored);
    expect(other.search(vectors)).toEqual(one.search(vectors));
  }
});

test("vectors of zeros have the cosine 0, and products beyond float32 are infinite or come last", () => {
  for (const format of ["f32", "int8"] as const) {
    using index = createIndex(
      kernels,
      packVectors(
        [
          [0, 0],
          [1, 2],
        ],
        { format },
      ),
    );
    expect(index.search([0, 0]).map((hit) => Math.abs(hit.score))).toEqual([0, 0]);
    expect(index.search([-1, -2])[0]).toEqual({ index: 0, score: 0 });
  }
  using large = createIndex(
    kernels,
    packVectors([
      [3e38, -3e38, ...Array(30).fill(0)],
      [1, ...Array(31).fill(0)],
    ]),
  );
  const scores = large.search([3e38, ...Array(31).fill(0)], { fn: "dot" });
  expect(scores.map((hit) => hit.score)).toEqual([Number.POSITIVE_INFINITY, 3e38].map(Math.fround));
});

test("int8 keeps the cosine of random vectors within 1e-3, and 9 of 10 of the first 10", () => {
  const vectors = randomVectors(10, 2000, 384);
  const queries = randomVectors(11, 10, 384);
  using floats = createIndex(kernels, packVectors(vectors));
  using integers = createIndex(kernels, packVectors(vectors, { format: "int8" }));
  let same = 0;
  const want = floats.search(queries);
  const got = integers.search(queries);
  for (const [q, hits] of got.entries()) {
    const ids = new Map(want[q]!.map((hit) => [hit.index, hit.score]));
    for (const { index, score } of hits) {
      const exactly = ids.get(index);
      if (exactly === undefined) continue;
      same++;
      expect(Math.abs(score - exactly)).toBeLessThan(1e-3);
    }
  }
  expect(same).toBeGreaterThanOrEqual(90);
});

const vector = [1, 2];
const packed = packVectors([vector, vector]);
const bits = packVectors([[1, -1, 1]], { format: "binary" });
const int8 = packVectors([vector], { format: "int8" });
const plain = await loadKernels();
const nan = packVectors([vector]).bytes;
new DataView(nan.buffer).setFloat32(4, Number.NaN, true);
const negative = Uint8Array.of(1, 2, 0, 0, 128, 191);

const REFUSED: readonly (readonly [() => unknown, string])[] = [
  [() => similarity([], [vector]), "similarity: a expected 1 or more vectors, got none"],
  [() => similarity([vector], [[1]]), "similarity: b[0] expected 2 numbers, got 1"],
  [() => similarity([[1, Number.NaN]], [vector]), "similarity: a[0][1] expected a finite float32 number, got NaN"],
  [() => similarity([[1e39]], [[1]]), "similarity: a[0][0] expected a finite float32 number, got Infinity"],
  [() => similarity([["1" as never]], [[1]]), 'similarity: a[0][0] expected a number, got "1"'],
  [() => similarity([new Float64Array(1) as never], [[1]]), "similarity: a[0] expected Float32Array, got Float64Array"],
  [() => similarity(vector as never, [vector]), "similarity: a[0] expected an array, got 1"],
  [
    () => similarity([vector], [vector], "l2" as never),
    'similarity: fn expected "cosine" or "dot" or "euclidean" or "manhattan", got "l2"',
  ],
  [() => packVectors([vector, [1]]), "packVectors: vectors[1] expected 2 numbers, got 1"],
  [() => packVectors([[]]), "packVectors: vectors[0] expected 1 to 65536 numbers, got 0"],
  [
    () => packVectors([vector], { format: "int4" as never }),
    'packVectors: format expected "f32" or "int8" or "binary", got "int4"',
  ],
  [
    () => createIndex(kernels, { ...packed, rows: 3 }),
    "createIndex: packed.bytes expected 24 bytes, 8 for each of 3 rows, got 16",
  ],
  [
    () => createIndex(kernels, { ...packed, dimensions: 0 }),
    "createIndex: packed.dimensions expected an integer from 1 to 65536, got 0",
  ],
  [
    () => createIndex(kernels, { ...packed, rows: 1, bytes: nan }),
    "createIndex: number 1 of row 0 of packed.bytes expected a finite float32 number, got NaN",
  ],
  [
    () => createIndex(kernels, { ...int8, bytes: negative }),
    "createIndex: the scale of row 0 of packed.bytes expected a finite number >= 0, got -1",
  ],
  [
    () => createIndex(kernels, { ...bits, bytes: Uint8Array.of(0xb0) }),
    "createIndex: the bits behind dimension 3 of row 0 of packed.bytes expected 0, got 16",
  ],
  [
    () => createIndex(plain, packed),
    "createIndex: kernels expected ones that were loaded with { models }, which headwise/models exports, got kernels without it",
  ],
  [() => createIndex(kernels, packed).add(int8), 'add: packed.format expected "f32", got "int8"'],
  [() => createIndex(kernels, packed).add(packVectors([[1]])), "add: packed.dimensions expected 2, got 1"],
  [() => createIndex(kernels, packed).search([1]), "search: query expected 2 numbers, got 1"],
  [() => createIndex(kernels, packed).search([vector, [1]]), "search: queries[1] expected 2 numbers, got 1"],
  [() => createIndex(kernels, packed).search(vector, { topK: 0 }), "search: topK expected an integer >= 1, got 0"],
  [
    () => createIndex(kernels, packed).search(vector, { rescore: 4 }),
    "search: rescore expected none for f32 vectors, got 4",
  ],
  [
    () => createIndex(kernels, int8).search(vector, { fn: "manhattan" }),
    'search: fn expected "cosine" or "dot" for int8 vectors, got "manhattan"',
  ],
  [
    () => createIndex(kernels, packed).search(vector, { top: 3 } as never),
    'search: options expected only topK, fn, rescore, got "top"',
  ],
];

test.each(REFUSED.map(([call, message]) => [message, call] as const))("refused: %s", (message, call) => {
  expect(call).toThrow(message);
});
