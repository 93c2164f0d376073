"""The order: which nodes new pods prefer (docs/order.md)."""
