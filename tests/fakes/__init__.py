"""Programs that stand in for what a test machine cannot have: ncu (needs a GPU), and a workload that needs one.

Each behaves as the real one was seen to: output, files and exit statuses are recorded ones.
"""
