import { afterEach, describe, expect, test, vi } from "vitest";
import { resolvePlace } from "../../../../src/base/platform/host.ts";
import { urlSource } from "../../../../src/files/http-source.ts";
import { openModelFiles } from "../../../../src/files/model-files.ts";
import { createStore } from "../../../../src/files/store.ts";

const PAGE = "https://example.com/app/index.html?a=1#b";
const page = { location: { href: PAGE } };

describe("a string without a scheme", () => {
  test.each([
    ["/models/x/", "https://example.com/models/x/"],
    ["./x.gguf?v=2", "https://example.com/app/x.gguf?v=2"],
    ["models/x", "https://example.com/app/models/x"],
    ["//other.example/x/", "https://other.example/x/"],
  ])("%s is relative to the address of a page or worker: %s", (place, url) => {
    expect(resolvePlace(place, page)).toEqual(new URL(url));
  });

  test("is relative to the base of the document where there is one", () => {
    const document = { baseURI: "https://example.com/base/" };
    expect(String(resolvePlace("x/", { ...page, document }))).toBe("https://example.com/base/x/");
  });

  test("is a path on a host with a file system, also if it has an address, and on one without an address", () => {
    const process = { getBuiltinModule: () => ({}) };
    expect([resolvePlace("./x", { ...page, process }), resolvePlace("./x", {})]).toEqual(["./x", "./x"]);
    expect(resolvePlace("./x")).toBe("./x");
  });

  test("is as it was in a worker of a blob, to whose address nothing is relative", () => {
    expect(resolvePlace("./x", { location: { href: "blob:https://example.com/1" } })).toBe("./x");
  });
});

test.each([["https://other.example/x"], ["file:///x"], ["C:\\models\\x"], [new URL("https://other.example/x")]])(
  "%s is as it was",
  (place) => {
    expect(resolvePlace(place, page)).toBe(place);
  },
);

describe("in a page", () => {
  afterEach(() => {
    vi.unstubAllGlobals();
  });
  const enterPage = () => {
    vi.stubGlobal("location", page.location);
    vi.stubGlobal("process", { ...process, getBuiltinModule: undefined });
  };

  test("urlSource and stores request the whole URL, and a store knows a file by it", async () => {
    enterPage();
    const asked: string[] = [];
    const fetch = async (url: string) => {
      asked.push(url);
      return new Response("12345678");
    };
    await urlSource("./x.bin", { fetch });
    const kept = new Map<string, Uint8Array>();
    const store = createStore({
      read: async (key) => kept.get(key),
      write: async (key, bytes) => void kept.set(key, bytes.slice()),
      remove: async (key) => void kept.delete(key),
    });
    await store.open("./x.bin", { fetch });
    expect(asked).toEqual(Array(2).fill("https://example.com/app/x.bin"));
    const entries = kept.size;
    await store.open("https://example.com/app/x.bin", { fetch });
    expect([entries, kept.size]).toEqual([1, 1]);
    await store.remove("/app/x.bin");
    expect(kept.size).toBe(0);
  });

  test.each([
    ["/models/x/", "https://example.com/models/x/config.json"],
    ["./x.gguf", "https://example.com/app/x.gguf"],
  ])("a model at %s is asked for at %s", async (source, url) => {
    enterPage();
    const asked: string[] = [];
    const open = async (at: string | URL) => {
      asked.push(String(at));
      throw new Error("no answer");
    };
    const openGguf = async (_where: string, name: string, openFile: (name: string) => Promise<unknown>) =>
      (await openFile(name)) as never;
    await expect(openModelFiles("loadModel", source, openGguf, undefined, { open })).rejects.toThrow("no answer");
    expect(asked[0]).toBe(url);
  });

  test.each([
    [
      "some-one/a.model",
      ": a model of that name on Hugging Face would have the URL https://huggingface.co/some-one/a.model/resolve/main/",
    ],
    ["./some-one/a.model", undefined],
  ])("a model at %s, which the server does not have, is answered with %s", async (source, hint) => {
    enterPage();
    vi.stubGlobal("fetch", async () => new Response("", { status: 404 }));
    const at = "https://example.com/app/some-one/a.model";
    await expect(openModelFiles("loadModel", source, undefined)).rejects.toThrow(
      hint === undefined
        ? `loadModel: url "${at}/config.json" expected a file that may be read, got 404 (not found)`
        : `loadModel: source expected a file "config.json" in "${at}", got none${hint}`,
    );
    vi.stubGlobal("fetch", async () => new Response("", { status: 410 }));
    await expect(openModelFiles("loadModel", source, undefined)).rejects.toThrow(
      /a file that may be read, got 410 \(gone\)$/,
    );
  });
});
