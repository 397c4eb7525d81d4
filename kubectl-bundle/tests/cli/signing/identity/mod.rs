//! Identity tokens from each source and from logins. No token is ever printed.

mod login;
mod service;
mod sources;
mod terminal;
