"""HTTP below the answers: who may connect, how much is taken in, how long it may take."""
