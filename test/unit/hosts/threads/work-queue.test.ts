import { expect, test } from "vitest";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import { type F32Ptr, RopeShape } from "../../../../src/wasm/abi.ts";
import { pointer } from "../../../../src/wasm/memory.ts";
import { floats, load } from "../../../support/harness.ts";
import { firstDifference, threadedKernels } from "../../../support/layers.ts";

test("thousands of jobs of a few tiny tiles: each tile once", async () => {
  const kernels = await threadedKernels("simd", 4);
  const { table, memory } = kernels;
  const alone = load("simd");
  const random = createRandom(4);
  const [rows, dim] = [40, 8];
  const data = [floats(random, rows * dim), floats(random, rows * 4), floats(random, rows * 4)];
  // Rotating in place by a random matrix: a tile that runs twice, or never, leaves other bits.
  const places = [memory, alone.memory].map((own) =>
    data.map((floats) => {
      const at = own.allocate("test", 4 * floats.length);
      own.f32(at, floats.length).set(floats);
      return pointer.f32(at);
    }),
  );
  const [shape, aloneShape] = [memory, alone.memory].map((own) => {
    const at = pointer.ropeShape(own.allocate("test", RopeShape.bytes));
    RopeShape.store(own.view(), at, { numHeads: 1, headDim: dim, ropeDim: dim, interleaved: 0, stride: dim });
    return at;
  });
  for (let job = 0; job < 4000; job++) {
    const begin = random.int(0, rows - 1);
    const end = random.int(begin + 1, rows);
    const [[x, cos, sin], [x1, cos1, sin1]] = places as [F32Ptr[], F32Ptr[]];
    table.rope_f32(x!, cos!, sin!, shape!, begin, end);
    alone.kernels.rope_f32(x1!, cos1!, sin1!, aloneShape!, begin, end);
    if (job % 500 !== 499) continue;
    // The matrices are not rotations: without this the numbers would run out of range.
    const [got, want] = [memory.f32(places[0]![0]!, rows * dim), alone.memory.f32(places[1]![0]!, rows * dim)];
    expect(firstDifference(got, want)).toBe(-1);
    got.set(data[0]!);
    want.set(data[0]!);
  }
  kernels.release();
});
