//! `keys`: one file a verb.
//! Not here: what a key is (bundle-trust).

pub(crate) mod generate;
pub(crate) mod public;
