"""The tools of profile trials, one module each; `tools` lists them."""
