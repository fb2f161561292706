import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { Diagnosis, EngineFeatures } from "../../../src/tools/diagnostics/doctor.ts";
import { manifest } from "../../support/cli.ts";
import { importWith } from "../../support/replace-module.ts";

/** As much of an element as the page needs. */
class FakeElement {
  readonly dataset: Record<string, string> = {};
  hidden = false;
  value = "";
  click: () => void = () => {};
  private own = "";
  private children: FakeElement[] = [];
  get textContent(): string {
    return this.own + this.children.map(({ textContent }) => textContent).join("");
  }
  set textContent(text: string) {
    this.own = text;
    this.children = [];
  }
  append(...children: FakeElement[]) {
    this.children.push(...children);
  }
  replaceChildren(...children: FakeElement[]) {
    this.own = "";
    this.children = children;
  }
  addEventListener(_: string, listener: () => void) {
    this.click = listener;
  }
  select() {}
}

const features: EngineFeatures = {
  ...{ codegen: true, simd: true, relaxedSimd: true, threads: true, sharedMemory: true },
  isolated: true,
};
const threads = { requested: "auto", used: 2, reason: "so" } as const;
const fine: Diagnosis = {
  ...{ ok: true, version: "1", engine: "e", features },
  kernels: { build: "simd", reason: "r", fused: false, threads, startMs: 1, memoryBytes: 2e6 },
};

describe("the page", () => {
  let elements: Map<string, FakeElement>;
  let refuse: (event: { effectiveDirective: string; blockedURI: string }) => void;
  const find = (id: string) => {
    if (!elements.has(id)) elements.set(id, new FakeElement());
    return elements.get(id) as FakeElement;
  };

  beforeEach(() => {
    elements = new Map();
    vi.stubGlobal("document", {
      getElementById: find,
      createElement: () => new FakeElement(),
      addEventListener: (_: string, listener: typeof refuse) => {
        refuse = listener;
      },
      documentElement: { dataset: { version: manifest.version } },
    });
    vi.stubGlobal("location", { search: "?threads=1" });
  });
  afterEach(() => void vi.unstubAllGlobals());

  const source = (name: string) => new URL(`../../../src/${name}.ts`, import.meta.url);
  const open = async (diagnose: () => Promise<Diagnosis>) => {
    await importWith(source("entries/doctor-page"), source("tools/diagnostics/doctor"), { diagnose });
    await vi.waitFor(() => expect(find("report").dataset.ok).toMatch(/^(true|false)$/), 5000);
  };

  test("lists what the policy refused in this run, not in earlier ones", async () => {
    let runs = 0;
    await open(async () => {
      refuse({ effectiveDirective: "worker-src", blockedURI: `blob-${++runs}` });
      return fine;
    });
    expect(find("report").textContent).toMatch(/^engine {5}e\n.*\npolicy {5}worker-src refused blob-1\n$/s);
    find("again").click();
    await vi.waitFor(() => expect(find("report").dataset.ok).toBe("true"), 5000);
    expect(find("report").textContent).toMatch(/\npolicy {5}worker-src refused blob-2\n$/);
  });

  const failed = { ok: false, digest: "0", expected: "1", outputs: 200, ms: 1 };
  const problem = { code: "NO_CODEGEN", message: "loadKernels: no" } as const;
  test.each<[string, Diagnosis, ok: string, verdict: string, summary: string]>([
    [
      ...(["that is well", fine, "true", "headwise works in this browser"] as const),
      "The self-test passed, with the simd build on 2 threads.",
    ],
    [
      ...(["of other bits", { ...fine, ok: false, selfTest: failed }, "false"] as const),
      ...(["headwise computes wrong bits in this browser"] as const),
      "The self-test failed. Please report it, with the text below.",
    ],
    [
      ...(["without kernels", { ...fine, ok: false, kernels: undefined, problem }, "false"] as const),
      ...(["headwise does not start in this browser", "loadKernels: no"] as const),
    ],
  ])("the verdict of an engine %s", async (_, diagnosis, ok, verdict, summary) => {
    await open(async () => diagnosis);
    expect(find("verdict").textContent).toBe(verdict);
    expect(find("verdict").dataset.ok).toBe(ok);
    expect(find("summary").textContent).toBe(summary);
    expect(find("report").dataset.ok).toBe(ok);
  });

  test("a diagnosis that throws is a verdict too, and no rows of an earlier run stay", async () => {
    let runs = 0;
    await open(async () => {
      if (runs++ > 0) throw new TypeError("it fell");
      return fine;
    });
    expect(find("report").textContent).not.toBe("");
    find("again").click();
    await vi.waitFor(() => expect(find("report").dataset.ok).toBe("false"), 5000);
    expect(find("verdict").textContent).toBe("Nothing was measured");
    expect(find("summary").textContent).toBe("TypeError: it fell");
    expect(find("report").textContent).toBe("");
  });

  test.each([
    ["shown where a page is not isolated", { ...features, isolated: false }, false],
    ["hidden where it is", features, true],
    ["hidden where the engine has no threads", { ...features, threads: false, isolated: false }, true],
  ])("the headers are %s", async (_, features, hidden) => {
    await open(async () => ({ ...fine, features }));
    expect(find("isolation").hidden).toBe(hidden);
  });

  test("without a clipboard, the text to copy is shown", async () => {
    await open(async () => fine);
    expect(find("manual").hidden).toBe(true);
    find("text").click();
    await vi.waitFor(() => expect(find("copied").textContent).toBe("Selected: copy it with the keyboard."));
    expect(find("manual").hidden).toBe(false);
    expect(find("manual").value).toMatch(/^headwise 1: ok\nengine {5}e\n/);
    find("headers").textContent = "the headers";
    find("copy-headers").click();
    await vi.waitFor(() => expect(find("headers-copied").textContent).not.toBe(""));
    expect(find("manual").value).toBe("the headers");
  });
});
