"""One small entrypoint a kernel; also what runs them, with or without a profiler around."""
