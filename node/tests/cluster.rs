//! Three nodes in one process: a cluster from configuration alone, and what it survives.

#[path = "cluster/data.rs"]
mod data;
#[path = "cluster/founding.rs"]
mod founding;
#[path = "cluster/quorum.rs"]
mod quorum;
#[path = "cluster/racks.rs"]
mod racks;
#[path = "cluster/serving.rs"]
mod serving;
#[path = "cluster/strangers.rs"]
mod strangers;
#[path = "cluster/transactions.rs"]
mod transactions;
#[path = "cluster/trio.rs"]
mod trio;
