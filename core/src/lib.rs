//! No I/O, no clock, no global randomness: a machine is a function of its inputs.
