//! `keys`: the verbs for key pairs, with one file for each verb.

mod arguments;
pub(crate) mod export;
pub(crate) mod generate;
pub(crate) mod import;
mod pair;
pub(crate) mod public;

pub(crate) use arguments::Arguments;
