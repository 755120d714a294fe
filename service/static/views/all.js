/** The views, in the order of their tabs. */

import { bars } from "./bars.js";
import { compare } from "./compare.js";
import { curves } from "./curves.js";
import { jacobian } from "./jacobian.js";
import { own } from "./own.js";
import { simplex } from "./simplex.js";
import { worked } from "./worked.js";

export const VIEWS = [bars, simplex, curves, jacobian, worked, compare, own];
