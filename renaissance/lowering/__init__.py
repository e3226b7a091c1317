"""What each layer computes, and the train step in both lowerings.

The modules here are the XLA lowering: plain functions, and the definition of everything. The fused
lowering takes the computation graph through four rooms of its own, none of which they know:
:mod:`~renaissance.lowering.fused` makes custom calls of its nodes,
:mod:`~renaissance.lowering.rewrites` makes fewer calls of many, and
:mod:`~renaissance.lowering.launches` says which kernels a call launches;
:mod:`~renaissance.lowering.calls` is what they all speak.
"""
