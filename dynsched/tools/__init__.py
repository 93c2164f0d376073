"""Programs other than the controller. Only `cli` imports them."""
