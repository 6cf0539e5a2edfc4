"""Quantities other than time that a report shows where `report.columns` chooses them."""
