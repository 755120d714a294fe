"""Jobs and the workers that evaluate them."""
