"""The logits processors, one a module; each is found by itself and registered under its name."""
