//! Decides the records of the metadata log from requests.

pub mod interface;
