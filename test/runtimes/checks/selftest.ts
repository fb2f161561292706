import type { Context } from "../suite.ts";
import { expectEqual, expectTrue, expectWithin } from "./expect.ts";

/** The published digests, which build runs, and what it says of itself. */
export async function checkSelfTest({ headwise, doctor, kernels, exact, load, start, check }: Context) {
  const found = doctor.selfTest(headwise, kernels);
  const simd = doctor.selfTest(headwise, exact);

  await check("selfTest: the default build reaches its published digest", () => {
    expectEqual("digest", found.digest, found.expected);
    expectEqual("ok", found.ok, true);
    expectEqual("outputs", found.outputs, 200);
  });
  await check("selfTest: the simd build reaches the digest of all engines", () => {
    expectEqual("digest", simd.digest, simd.expected);
    expectEqual("ok", simd.ok, true);
  });
  await check("selfTest: twice gives the same", () =>
    expectEqual("digest", doctor.selfTest(headwise, kernels).digest, found.digest),
  );
  await check("selfTest: gives back the memory it took", () => {
    const before = kernels.usedBytes;
    doctor.selfTest(headwise, kernels);
    expectEqual("usedBytes", kernels.usedBytes, before);
  });
  await check("loadKernels: the build fuses if and only if it is the relaxed one, and says why it runs", () => {
    expectEqual("fused", kernels.fused, kernels.build === "relaxed");
    expectTrue("a build of two", kernels.build === "relaxed" || kernels.build === "simd");
    const reason = kernels.fused ? "this engine fuses multiply and add" : /relaxed SIMD|fuse|the module given/;
    expectTrue(`the reason ${kernels.reason}`, new RegExp(reason).test(kernels.reason));
  });
  await check("loadKernels: deterministic gives simd", () => {
    expectEqual("build", exact.build, "simd");
    expectEqual("fused", exact.fused, false);
    expectEqual("reason", exact.reason, load.module ? "the module given" : "deterministic was asked for");
  });
  await check("loadKernels: threads are reported", () => {
    const { requested, used, reason } = kernels.threads;
    expectEqual("requested", requested, load.threads ?? requested);
    expectWithin("used", used, 1, 64);
    expectTrue("a reason", reason.length > 10);
  });
  await check("loadKernels: one thread on request", async () => {
    const one = await start({ threads: 1 });
    expectEqual("used", one.threads.used, 1);
    expectEqual("reason", one.threads.reason, "one thread was asked for");
    one.release();
  });
  return { default: found.digest, simd: simd.digest };
}
