// The source of the worker of `openModel`, which is imported when one is asked for.

import source from "../../build/open-worker.txt";

/** A script of one expression. */
export const workerSource: string = source;
