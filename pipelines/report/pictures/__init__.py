"""The figures of reports, as SVG."""
