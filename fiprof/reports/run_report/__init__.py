"""The parts of ``fiprof report``: what a run's page says."""
