"""What `dynsched run` is: the loop and what stands around it, put together in `main`."""
