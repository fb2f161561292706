import { markReady, startPage } from "./page.ts";

startPage();
markReady();
