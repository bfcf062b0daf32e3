//! The storage engine on a real directory and in memory: what it keeps, what it tells, and what a
//! power loss at any moment leaves.

mod cleaning;
mod crash;
mod cuts;
mod faults;
mod keeping;
mod life;
mod lives;
#[cfg(mutants)]
mod mutants;
mod support;
mod watched;
mod watching;
