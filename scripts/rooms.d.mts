export declare const ROOMS: readonly string[];
