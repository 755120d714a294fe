"""Files of any size, mapped some rows at a time."""
