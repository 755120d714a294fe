"""Mappings from logits to probabilities: batched, exact, on any device. Nothing but torch."""
