/** The version of this package, by which a worker and the thread that uses it know that they fit together. */
export const VERSION = "0.4.0";
