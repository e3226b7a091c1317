"""From the computation graph to custom calls on banks, one after the other."""
