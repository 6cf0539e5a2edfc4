"""Configuration to arms, effects and packs; nothing runs here."""
