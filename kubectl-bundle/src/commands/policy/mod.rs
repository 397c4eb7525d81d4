//! `policy`: trying SignaturePolicies before they are in force.
//! Not here: the decision (bundle-trust).

pub(crate) mod test;
