//! What clients do. The rules (which batch next, what an answer means, when to try again) have no
//! I/O and serve every world; `client` and `clients` carry them out over a network. Members of
//! groups ask and wait by an environment that each world has for them (`members`).

pub mod client;
pub mod clients;
pub mod members;
pub mod values;
pub mod writer;
