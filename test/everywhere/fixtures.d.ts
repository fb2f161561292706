declare module "everywhere:fixtures" {
  export const fixtures: import("./suite.ts").Fixtures;
}
