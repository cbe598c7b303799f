"""Whether changes and histories are sound: the rows that are not; and neighbours folded into one."""
