"""Stochastic parameter decomposition: a frozen network, its rank-one subcomponents, and which of them an
input needs."""
