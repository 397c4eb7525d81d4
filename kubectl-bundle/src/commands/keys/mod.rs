//! `keys`: one file a verb.
//! Not here: what a key is (bundle-trust).

pub(crate) mod export;
pub(crate) mod generate;
pub(crate) mod import;
mod pair;
pub(crate) mod public;
