"""What clients send and get, derived from the registry of mappings."""
