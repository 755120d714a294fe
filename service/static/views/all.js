/** The views, in the order of their tabs. */

import { bars } from "./bars.js";

export const VIEWS = [bars];
