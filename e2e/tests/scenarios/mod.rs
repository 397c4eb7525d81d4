//! The subjects. A scenario fails by panicking, so that its cluster's logs are kept.

mod admission;
mod cli;
mod content;
mod harness;
mod node;
mod objects;
mod pod;
mod reconcile;
mod registry;
mod requester;
mod signing;
mod verification;
