/**
 * What `new globalThis[Name]()` gives, where a program is compiled with the type of that global, else any object. Programs
 * have the types of the DOM, of web workers, of Node, or none of these, so declarations must not name them.
 */
export type Global<Name extends string> = typeof globalThis extends { readonly [N in Name]: { prototype: infer T } }
  ? T
  : object;
