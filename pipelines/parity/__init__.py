"""Whether results are the same: pure comparisons of evidence."""
