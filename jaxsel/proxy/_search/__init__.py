"""Search among schedules of phases."""
