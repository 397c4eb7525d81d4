//! Requests to a Kubernetes API server by parsed names.
//!
//! The client library puts names and namespaces into URLs as they are: one with a `/` or a `?` in it would ask for something else. Here every name is
//! parsed first. The methods of the client library that take names are banned everywhere else (`clippy.toml`).

mod by_name;
mod url;

pub use by_name::ByName;
pub use url::{ObjectUrl, namespaced};
