"""What others call over HTTP; answered from the last tick in memory."""
