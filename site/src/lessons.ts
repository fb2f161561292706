// Lessons: a question, a view and an answer that is folded until it is asked for.

import { markReady, startPage } from "./page.ts";

startPage();
markReady();
