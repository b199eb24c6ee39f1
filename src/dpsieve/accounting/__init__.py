"""Privacy accounting: spends, curves, loss distributions and adaptive composition."""
