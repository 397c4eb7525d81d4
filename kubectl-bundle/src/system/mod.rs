//! The operating system: files, external commands, TLS provider.

pub(crate) mod command_lookup;
pub(crate) mod files;
pub(crate) mod network;
pub(crate) mod process;
pub(crate) mod secrets;
pub(crate) mod tls;
