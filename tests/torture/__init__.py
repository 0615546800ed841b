"""Real processes under load, killed, paused and scaled at random: see `run`."""
