//! `policy`: evaluates SignaturePolicies before they are applied.

mod arguments;
pub(crate) mod test;

pub(crate) use arguments::Arguments;
