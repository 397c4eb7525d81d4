//! `policy`: evaluates SignaturePolicies before they are applied.

pub(crate) mod test;
