"""`perfsweep doctor gpu=true`: whether what perfsweep says of a GPU can be believed on this one."""
