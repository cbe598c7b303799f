"""What people would use instead, on the same feed: how long it takes, and whether the answer is right."""
