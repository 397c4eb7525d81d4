//! This machine: programs that run once or for long, a server of files, requests by plain HTTP,
//! network namespaces, ports, memory limits, and the programs that must be installed.

pub mod command;
pub mod file_server;
pub mod island;
pub mod memory_limit;
pub mod packages;
pub mod plain_http;
pub mod prerequisites;

pub(crate) mod janitor;
pub(crate) mod ports;
pub(crate) mod process;
