export function pack(options: { readonly into: string }): string;
