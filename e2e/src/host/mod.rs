//! This machine: short and long-running programs, a file server, plain HTTP requests, network
//! namespaces, ports, memory limits, and required programs.

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
