"""A study: a declared matrix of cases, measured in few processes, over as many sessions as it takes."""
