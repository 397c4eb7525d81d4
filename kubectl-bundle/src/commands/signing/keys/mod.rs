//! `keys`: one file per verb.

pub(crate) mod export;
pub(crate) mod generate;
pub(crate) mod import;
mod pair;
pub(crate) mod public;
