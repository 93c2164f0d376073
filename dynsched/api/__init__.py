"""What others call over HTTP; answered from the last Snapshot in memory."""
