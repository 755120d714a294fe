/** Lists in requests that follow a rule: JSON spells them out, programs need not. */

/** The same row, so many times. */
export class Repeated {
  constructor(row, times) {
    Object.assign(this, { row, times });
  }

  toJSON() {
    return Array(this.times).fill(this.row);
  }
}

/** The same row again and again, but for one class, which takes these values. */
export class Varied {
  constructor(row, place, values) {
    Object.assign(this, { row, place, values });
  }

  toJSON() {
    return this.values.map((value) => this.row.map((one, at) => (at === this.place ? value : one)));
  }
}
