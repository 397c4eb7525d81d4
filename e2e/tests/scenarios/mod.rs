//! All scenarios, one file for each subject. A scenario panics when it fails, so that the logs of
//! its cluster are kept.

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
mod rukpak;
mod signing;
mod verification;
