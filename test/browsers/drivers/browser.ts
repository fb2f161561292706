/** A browser that runs, whatever drives it. */
export interface Browser {
  /** As the table names it. */
  readonly name: string;
  readonly version: string;
  /** Opens a page of its own and returns what it reports; throws a `NoReport` when nothing comes in time. */
  visit(url: string): Promise<PageReport>;
  /** Installs the extension in a folder, where the browser lets a driver do so; returns the address of its files. */
  readonly installExtension?: (folder: string) => Promise<string>;
  close(): Promise<void>;
}

/** What pages/harness.mjs collects in a page. */
export interface PageReport {
  readonly result?: unknown;
  /** Text and stack of what the page threw. */
  readonly error?: string;
  /** How many workers the page has now, where the browser tells. */
  readonly workers?: number;
}

interface PageState extends PageReport {
  readonly done: boolean;
  readonly step: string;
}

/** The expression that pages keep their state under; it is read as text so that any driver can hand it over. */
export const STATE = "JSON.stringify(globalThis.headwisePage ?? null)";

const PATIENCE_MS = 120_000;

/** A page reported neither a success nor a failure. */
export class NoReport extends Error {}

/**
 * Reads the state of a page until it is done. `read` evaluates STATE there; `messages` are what the browser itself
 * reports of the page, for the error when nothing comes.
 */
export async function awaitReport(
  url: string,
  read: () => Promise<string>,
  messages: () => readonly string[] = () => [],
): Promise<PageReport> {
  const end = Date.now() + PATIENCE_MS;
  let step = "its scripts did not run";
  while (Date.now() < end) {
    const state = JSON.parse(await within(read(), end - Date.now(), `${url}: ${step}`)) as PageState | null;
    if (state?.done) return state;
    if (state) step = `it stands at "${state.step}"`;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new NoReport(`${url}: no report within ${PATIENCE_MS / 1000} s: ${[step, ...messages()].join("; ")}`);
}

/** What `promise` gives, unless it takes longer. */
export async function within<T>(promise: Promise<T>, ms: number, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: no answer in time`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
