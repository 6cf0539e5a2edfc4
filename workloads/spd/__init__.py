"""Stochastic parameter decomposition: a frozen network, its rank-one subcomponents, which an input needs."""
