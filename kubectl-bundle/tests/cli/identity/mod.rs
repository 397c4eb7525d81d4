//! Identity tokens: from each place where one can be, and from somebody who logs in; and that none of them is ever seen.

mod login;
mod service;
mod sources;
mod terminal;
