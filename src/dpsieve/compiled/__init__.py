"""What all compiled loops share: settings, memory, 128-bit words."""
