//! HTTP clients: connections, TLS, network zones, request bodies and the request log.

pub(in crate::registry) mod body;
pub(in crate::registry) mod client;
pub(in crate::registry) mod error_message;
pub(in crate::registry) mod pools;
pub(in crate::registry) mod request_log;
pub(in crate::registry) mod tls;
pub(in crate::registry) mod zone;
