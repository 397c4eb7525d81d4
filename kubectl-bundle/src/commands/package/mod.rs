//! Verbs that create or read the content of a bundle.

pub(crate) mod build;
pub(crate) mod init;
pub(crate) mod inspect;
pub(crate) mod render;
pub(crate) mod unpack;
