// `open-worker-text.ts` for hosts without workers.

/** Nothing is run of it. */
export const workerSource = "";
