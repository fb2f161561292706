import { expect, test } from "vitest";
import { findHost, type Scope, type ThreadWorker } from "../../../../src/base/platform/workers.ts";

const makeWorker = (): ThreadWorker => ({ postMessage() {}, terminate() {} });

test("what a host offers is found in its global scope", () => {
  const urls: string[] = [];
  class WebWorker implements ThreadWorker {
    constructor(url: string, options: { type: "module" }) {
      urls.push(url, options.type);
    }
    postMessage(): void {}
    terminate(): void {}
  }
  const page: Scope = {
    SharedArrayBuffer,
    crossOriginIsolated: true,
    navigator: { hardwareConcurrency: 6 },
    Worker: WebWorker,
    Blob,
    URL: { createObjectURL: () => "blob:source", revokeObjectURL: (url) => urls.push(`revoked ${url}`) },
  };
  const host = findHost(page, "source");
  expect([host.sharing.possible, host.processors]).toEqual([true, 6]);
  host.createWorker?.();
  host.createWorker?.();
  host.close?.();
  expect(urls).toEqual(["blob:source", "module", "blob:source", "module", "revoked blob:source"]);

  const bare = findHost({}, "source");
  expect(bare).toMatchObject({ sharing: { possible: false }, processors: 1, createWorker: undefined });
  expect(bare.sharing.reason).toBe("this engine has no shared memory");
  expect(findHost({ ...page, crossOriginIsolated: false }, "source").sharing).toEqual({
    possible: false,
    reason:
      "this page is not cross-origin isolated: serve it with the headers Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp",
  });
  expect(findHost({ ...page, Worker: undefined }, "source").createWorker).toBe(undefined);
  expect(findHost({ ...page, Worker: undefined }, "source", makeWorker).createWorker).toBe(makeWorker);
});
