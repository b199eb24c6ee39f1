"""What a server does: counts reports, asks level by level, and releases what reaches the threshold."""
