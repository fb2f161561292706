/** 28 bits of a hash of the kernels' sources, `listed` by their paths in assembly/, and of the compiler's settings. */
export declare function stampOf(listed: readonly string[]): number;
