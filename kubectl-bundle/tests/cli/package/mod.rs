//! Verbs that create or read the content of a bundle.

mod bundles;
mod images;
pub(crate) mod init;
mod packing;
