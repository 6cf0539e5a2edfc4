"""Proof policies on knowledge graphs: candidates of link-prediction queries are proved, scored, ranked."""
