"""Proof policies on knowledge graphs: every candidate of a link-prediction query is proved, scored and
ranked."""
