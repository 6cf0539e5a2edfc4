"""One two-parameter logistic regression for every (latent, class) pair of sparse autoencoder activations."""
