"""The loop: observe, decide, act, once per pool and round. Decisions are made in `decide/`, objects in `build/`."""
