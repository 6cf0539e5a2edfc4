"""Effects to words and pictures: terminal, HTML, Markdown."""
