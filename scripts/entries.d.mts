export declare function staleCopies(write: boolean): string[];
export declare const PEERS: string[];
