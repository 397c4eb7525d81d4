//! The operating system: files, external commands, TLS provider; delays before retries.

pub(crate) mod command_lookup;
pub(crate) mod delays;
pub(crate) mod files;
pub(crate) mod network;
pub(crate) mod process;
pub(crate) mod secrets;
pub(crate) mod tls;
