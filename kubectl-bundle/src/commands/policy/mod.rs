//! `policy`: trying SignaturePolicies before they are in force.

pub(crate) mod test;
