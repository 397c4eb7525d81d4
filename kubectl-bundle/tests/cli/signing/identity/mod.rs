//! Identity tokens from each source and from logins, none of which is ever printed.

mod login;
mod service;
mod sources;
mod terminal;
