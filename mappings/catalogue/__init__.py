"""The mappings, one a module; each is found by itself and registered under its name."""
