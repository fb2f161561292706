export declare function staleCopies(write: boolean): string[];
