//! The listeners: admission and content over TLS, health and metrics over plain HTTP, and their
//! graceful shutdown.

pub mod admission_listener;
pub mod client_authority;
pub mod connections;
pub mod content_listener;
pub mod deadline;
pub mod guard;
pub mod health;
pub mod listener;
pub mod responses;
pub mod tls_listener;
