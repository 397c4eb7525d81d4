//! The two listeners: admission over TLS, health and metrics over plain HTTP, and their graceful
//! shutdown.

pub mod admission_listener;
pub mod client_authority;
pub mod connections;
pub mod guard;
pub mod health;
pub mod listener;
pub mod responses;
