import { afterEach, describe, expect, test, vi } from "vitest";
import { manifest } from "../../support/cli.ts";
import { importWith } from "../../support/replace-module.ts";

describe("the page", () => {
  afterEach(() => void vi.unstubAllGlobals());

  test("lists what the policy refused in this run, not in earlier ones", async () => {
    const elements = new Map<string, { textContent: string; dataset: Record<string, string>; click?: () => void }>();
    const find = (id: string) => {
      const made = {
        textContent: "",
        dataset: {},
        addEventListener: (_: string, f: () => void) => Object.assign(made, { click: f }),
      };
      if (!elements.has(id)) elements.set(id, made);
      return elements.get(id);
    };
    let refuse: (event: { effectiveDirective: string; blockedURI: string }) => void = () => {};
    const addEventListener = (_: string, listener: typeof refuse) => {
      refuse = listener;
    };
    vi.stubGlobal("document", {
      getElementById: find,
      addEventListener,
      documentElement: { dataset: { version: manifest.version } },
    });
    vi.stubGlobal("location", { search: "?threads=1" });
    let runs = 0;
    const diagnose = async () => {
      refuse({ effectiveDirective: "worker-src", blockedURI: `blob-${++runs}` });
      return { ok: true, version: "1", engine: "e", features: {} };
    };
    const source = (name: string) => new URL(`../../../src/${name}.ts`, import.meta.url);
    await importWith(source("entries/doctor-page"), source("diagnostics/doctor"), { diagnose });
    const report = find("report");
    await vi.waitFor(() => expect(report?.dataset.ok).toBe("true"), 5000);
    expect(report?.textContent).toMatch(/^headwise 1: ok\n.*\npolicy {5}worker-src refused blob-1$/s);
    find("again")?.click?.();
    await vi.waitFor(() => expect(report?.dataset.ok).toBe("true"), 5000);
    expect(report?.textContent).toMatch(/^headwise 1: ok\n.*\npolicy {5}worker-src refused blob-2$/s);
  });
});
