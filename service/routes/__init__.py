"""One router a resource: decode, submit, encode."""
