"""What sample-and-threshold is compared with, each calibrated as well as it can be."""
