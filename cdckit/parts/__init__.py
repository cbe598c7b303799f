"""What several doors, the merge and the questions need, and no specification owns."""
