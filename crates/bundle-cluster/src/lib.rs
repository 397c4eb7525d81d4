//! All requests of bundle-webhook and kubectl-bundle to a Kubernetes API server.
//!
//! The client library puts names and namespaces into URLs unchanged, so that a name with `/` or `?`
//! would select another resource. This crate parses each name before it builds a URL ([`ByName`],
//! [`namespaced`], [`ObjectUrl`]). Outside of this crate, `clippy.toml` bans the methods of the
//! client library that expect a name.

pub mod access;
pub mod account;
pub mod blocking;
mod by_name;
mod clock;
pub mod connection;
pub mod discovery;
pub mod dry_run;
pub mod error;
pub mod inventory;
pub mod object;
pub mod parallel;
pub mod responses;
pub mod review;
mod url;
mod warning;
pub mod watch;

pub use by_name::ByName;
pub use error::chain;
pub use url::{ObjectUrl, namespaced};
pub use warning::warnings;
