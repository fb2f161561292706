// What must come of each page.

import type { Report } from "../runtimes/suite.ts";
import type { PageReport } from "./drivers/browser.ts";

/** What a browser can do, as far as it decides what a page must report. */
export interface Abilities {
  readonly relaxedSimd: boolean;
  readonly sharedMemory: boolean;
  /** Cross-Origin-Embedder-Policy: credentialless. */
  readonly credentialless: boolean;
}

/** What the table shows, and what is wrong. */
export interface Verdict {
  readonly build?: string;
  readonly checks?: string;
  /** Those that must be the same in every browser. */
  readonly digests?: Readonly<Record<string, string>>;
  readonly workloadMs?: number;
  /** Of threads and other things, in words. */
  readonly details?: string;
  readonly problems: readonly string[];
}

export type Judge = (page: PageReport, can: Abilities, address: string) => Verdict;

/** What `twoThreads` of pages/work.mjs returns. */
interface TwoThreads {
  readonly used: number;
  readonly reason: string;
  readonly ok: boolean;
  readonly digest: string;
}

/** What `work` of pages/work.mjs returns. */
interface Work {
  readonly two: TwoThreads;
  readonly suite: Report;
  readonly warnings: readonly string[];
}

/** What `twoShards` of pages/shards.mjs returns. */
interface TwoShards {
  readonly used: number;
  readonly reason: string;
  readonly same: boolean;
}

/** What `outcomeOf` of pages/outcome.mjs returns. */
interface Outcome {
  readonly build?: string;
  readonly name?: string;
  readonly code?: string;
  readonly message?: string;
}

/** How many threads a page gets that asks for two, and why. */
export type Isolation = (can: Abilities) => { readonly used: number; readonly reason: string };

export const notIsolated: Isolation = () => ({
  used: 1,
  reason:
    "this page is not cross-origin isolated: serve it with the headers Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp",
});

export const isolated: Isolation = ({ sharedMemory }) =>
  sharedMemory
    ? { used: 2, reason: "as many as were asked for" }
    : { used: 1, reason: "this engine has no shared memory" };

export const credentialless: Isolation = (can) => (can.credentialless ? isolated(can) : notIsolated(can));

/** The problem of a value that should be another. */
function differing(what: string, value: unknown, expected: unknown): string[] {
  const [got, wanted] = [value, expected].map((each) => JSON.stringify(each));
  return got === wanted ? [] : [`${what} expected ${wanted}, got ${got}`];
}

/** The problem of a text that should hold others. */
function lacking(what: string, text: string | undefined, ...parts: readonly string[]): string[] {
  const missing = parts.filter((part) => !text?.includes(part));
  return missing.length === 0 ? [] : [`${what} expected to say ${missing.join(" and ")}, got ${JSON.stringify(text)}`];
}

/** All of the work: the suite, and what comes of asking for two threads. */
export function judgeWork(isolation: Isolation): Judge {
  return ({ result }, can) => {
    const { two, suite, warnings } = result as Work;
    const { checks, build, workloadMs } = suite;
    const { default: _, ...digests } = suite.digests;
    const { used, reason } = isolation(can);
    const about = warnings.filter((text) => text.endsWith(reason));
    const failed = checks.filter(({ ok }) => !ok);
    return {
      build,
      checks: `${checks.length - failed.length}/${checks.length}`,
      digests,
      workloadMs,
      details: `${two.used}: ${two.reason}`,
      problems: [
        ...failed.map(({ name, error }) => `check "${name}": ${error}`),
        ...differing("checks, whether they are a hundred", checks.length >= 100, true),
        ...differing("build", build, can.relaxedSimd ? "relaxed" : "simd"),
        ...differing("threads", [two.used, two.reason], [used, reason]),
        ...differing("warnings", about, used > 1 ? [] : [`headwise: one thread instead of 2: ${reason}`]),
        ...differing("self-test with threads", [two.ok, two.digest], [true, digests.simd]),
      ],
    };
  };
}

/** The work on the entry with threads, on as many as there may be. */
export function judgeThreadedWork(isolation: Isolation): Judge {
  return (page, can, address) => {
    const verdict = judgeWork(isolation)(page, can, address);
    const { threads } = (page.result as Work).suite;
    const problems = differing("threads of the suite", threads, { requested: 2, ...isolation(can) });
    return { ...verdict, problems: [...verdict.problems, ...problems] };
  };
}

/** A page where wasm is forbidden. */
export const judgeRefusals: Judge = ({ result }) => {
  const outcomes = Object.entries(result as Record<string, Outcome>);
  return {
    details: outcomes.map(([entry, { build, code }]) => `${entry} ${build ?? code}`).join(", "),
    problems: outcomes.flatMap(([entry, { name, code, message }]) => [
      ...differing(`error of ${entry}`, [name, code], ["HeadwiseError", "NO_CODEGEN"]),
      ...lacking(`error of ${entry}`, message, "script-src 'wasm-unsafe-eval'"),
    ]),
  };
};

/** A page that may not make workers of text, but may of files. */
export const judgeOwnWorkers: Judge = ({ result }, can) => {
  const { text, file, here } = result as {
    readonly text: { readonly threads: TwoThreads; readonly shards: TwoShards; readonly opened: string };
    readonly file: Record<"classic" | "module", TwoThreads> & { readonly shards: TwoShards; readonly opened: string };
    readonly here: string;
  };
  const { used, reason } = isolated(can);
  const refused = used > 1 ? ["no worker started (", "worker-src blob:", "createWorker"] : [reason];
  return {
    digests: { simd: text.threads.digest },
    details: `text ${text.threads.used}: ${text.threads.reason}; file ${file.classic.used}: ${file.classic.reason}`,
    problems: [
      ...differing("threads of text", [text.threads.used, text.threads.ok], [1, true]),
      ...lacking("reason of one thread", text.threads.reason, ...refused),
      ...differing("shards of text", [text.shards.used, text.shards.same], [1, true]),
      ...lacking("reason of one shard", text.shards.reason, "worker-src blob:", "createWorker"),
      ...[file.classic, file.module].flatMap(({ ok, digest, ...threads }) => [
        ...differing("threads of a file", [threads.used, threads.reason], [used, reason]),
        ...differing("self-test with threads", [ok, digest], [true, text.threads.digest]),
      ]),
      ...differing("shards of a file", [file.shards.used, file.shards.same], [2, true]),
      ...lacking("an opened model in a worker of text", text.opened, "WORKER_LOST: openModel: "),
      ...differing("what is written in a worker of a file", file.opened, here),
      ...differing("tokens that are written", here.split(" ").length, 6),
    ],
  };
};

export const judgeShards: Judge = ({ result }) => {
  const { used, reason, same } = result as TwoShards;
  return {
    details: `${used} shards: ${reason}`,
    problems: differing("shards, and whether the bits are the same", [used, same], [2, true]),
  };
};

/** How many workers a page has at the end: none, or those of all its engines. */
export function judgeWorkers(kept: boolean): Judge {
  return ({ result, workers }, { sharedMemory }) => {
    const { used, made, ended } = result as {
      readonly used: readonly number[];
      readonly made: number;
      readonly ended: number;
    };
    const threads = sharedMemory ? 3 : 1;
    const all = 2 * (threads - 1) + 2;
    const left = kept ? all : 0;
    return {
      details: `${used.join(", ")} used; ${made} workers made, ${ended} ended; ${workers ?? "cannot say how many"} left`,
      problems: [
        ...differing("threads and shards", used, [threads, threads, 2]),
        ...differing("workers made and ended", [made, ended], [all, all - left]),
        // Not every driver can count them.
        ...(workers === undefined ? [] : differing("workers left", workers, left)),
      ],
    };
  };
}

/** Modules from a server. */
export const judgeModules: Judge = ({ result }, _can, address) => {
  const { fine, page, missing, unreachable } = result as Record<string, Record<string, Outcome>> & {
    readonly missing: Outcome;
    readonly unreachable: Outcome;
  };
  const notWasm = (what: string, outcome: Outcome | undefined, ...parts: readonly string[]) => [
    ...differing(`error of ${what}`, [outcome?.name, outcome?.code], ["HeadwiseError", "NOT_WASM"]),
    ...lacking(`error of ${what}`, outcome?.message, ...parts),
  ];
  const bytes = "3c 21 64 6f";
  return {
    details: page?.url?.message,
    problems: [
      ...Object.entries(fine ?? {}).flatMap(([kind, { build, message }]) =>
        differing(`build of a module as ${kind}`, build ?? message, "simd"),
      ),
      ...Object.entries(page ?? {}).flatMap(([kind, outcome]) =>
        notWasm(`a page as ${kind}`, outcome, `${address}app/simd.wasm`, "200", "text/html", bytes),
      ),
      ...notWasm("a missing file", missing, `${address}gone.wasm`, "404", "text/html", "3c 68 31 3e"),
      ...differing("error of no server", [unreachable.name, unreachable.code], ["HeadwiseError", "BAD_FILE"]),
      ...lacking("error of no server", unreachable.message, "http://127.0.0.1:9/simd.wasm"),
    ],
  };
};

export const judgeRanges: Judge = ({ result }) => {
  const { tensors, server, blob, relativeFile, relative } = result as Record<string, number> & { relative: string[] };
  return {
    details: `${tensors} tensors, ${server} right from a server, ${blob} from a Blob; models by relative URLs: ${relative}`,
    problems: [
      ...differing(
        "tensors from a server, by a relative URL and from a Blob",
        [server, relativeFile, blob],
        Array(3).fill(tensors),
      ),
      ...differing("models by relative URLs", relative, Array(3).fill("llama")),
    ],
  };
};

/** What pages/doctor.mjs finds in doctor.html. */
interface DoctorPage {
  readonly ok: boolean;
  readonly text: string;
  readonly verdict: string;
  /** Whether the page shows the headers that allow threads. */
  readonly headers: boolean;
  readonly styled: boolean;
  /** Whether nothing is wider than a phone. */
  readonly fits: boolean;
}

/** doctor.html: whether all is well, with the threads that there may be, or what is refused; and how the page looks. */
export function judgeDoctor(isolation: Isolation, ...refusal: readonly string[]): Judge {
  return ({ result }, can) => {
    const { ok, text, verdict, headers, styled, fits } = result as DoctorPage;
    const works = refusal.length === 0;
    return {
      details: text.slice(text.indexOf("features")).replaceAll(/\s+/g, " ").slice(0, 240),
      problems: [
        ...differing("whether the report is good", ok, works),
        ...lacking("report", text, ...(works ? [isolation(can).reason] : refusal)),
        ...lacking("verdict", verdict, works ? "headwise works" : "headwise does not start"),
        ...differing("whether the headers are shown", headers, works && isolation === notIsolated),
        ...differing("whether the page has a style and fits a phone", [styled, fits], [true, true]),
      ],
    };
  };
}
