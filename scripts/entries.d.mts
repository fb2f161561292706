export declare function viteAliases(): Record<string, string>;
export declare function staleCopies(write: boolean): string[];
