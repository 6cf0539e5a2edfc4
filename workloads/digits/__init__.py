"""Training a small classifier on scikit-learn's digits: the shared toggles in a minute, and a template."""
