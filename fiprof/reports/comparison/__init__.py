"""What ``fiprof compare`` says: for the terminal and programs, as a comment of a pull request, as a page."""
